"""Black-box access to a model: whatever it is, logits or probabilities and the losses of records."""

from dosimeter.models._access import access
from dosimeter.models.black_box import BlackBox
from dosimeter.models.hugging_face import HuggingFace, Sequences
from dosimeter.models.outputs import Losses, Outputs
from dosimeter.records import dataset

__all__ = ["BlackBox", "HuggingFace", "Losses", "Outputs", "Sequences", "access", "dataset"]
