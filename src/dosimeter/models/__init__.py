"""Black-box access to a model of any kind: logits or probabilities, and the losses of records."""

from dosimeter.models.black_box import BlackBox, access
from dosimeter.models.hard_labels import HardLabels
from dosimeter.models.hugging_face import HuggingFace, Sequences
from dosimeter.models.multi_label import MultiLabel
from dosimeter.models.outputs import Losses, Outputs, task_of
from dosimeter.models.perturbation import Perturbation
from dosimeter.models.regression import Predictions
from dosimeter.records import dataset

__all__ = [
    "BlackBox",
    "HardLabels",
    "HuggingFace",
    "Losses",
    "MultiLabel",
    "Outputs",
    "Perturbation",
    "Predictions",
    "Sequences",
    "access",
    "dataset",
    "task_of",
]
