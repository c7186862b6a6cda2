"""Scores or losses that an attack gave."""

from dosimeter.audits.scores.run import audit_scores

__all__ = ["audit_scores"]
