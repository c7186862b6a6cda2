"""A training that can be repeated."""

from dosimeter.audits.training.run import audit_training

__all__ = ["audit_training"]
