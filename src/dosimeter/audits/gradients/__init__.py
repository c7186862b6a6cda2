"""The noisy gradients of DP-SGD: models that the audit trains, or your own Opacus runs watched by a hook."""

from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients.opacus_hook import OpacusTranscript
from dosimeter.audits.gradients.run import audit_gradients
from dosimeter.audits.gradients.transcripts import audit_transcripts

__all__ = ["OpacusTranscript", "Transcripts", "audit_gradients", "audit_transcripts"]
