"""The noisy gradients of DP-SGD."""

from dosimeter.audits.gradients.run import audit_gradients

__all__ = ["audit_gradients"]
