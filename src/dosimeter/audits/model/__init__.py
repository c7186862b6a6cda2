"""One trained model."""

from dosimeter.audits.model.run import audit_model

__all__ = ["audit_model"]
