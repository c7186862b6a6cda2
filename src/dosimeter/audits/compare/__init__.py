"""Several audits side by side."""

from dosimeter.audits.compare.run import compare

__all__ = ["compare"]
