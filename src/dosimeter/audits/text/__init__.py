"""Language models: canaries put into a fine-tuning by coins, their scores, and what was memorised."""

from dosimeter.audits.text.model import TextModel
from dosimeter.audits.text.run import audit_canaries
from dosimeter.audits.text.sheet import CanarySheet, canary_sheet

__all__ = ["CanarySheet", "TextModel", "audit_canaries", "canary_sheet"]
