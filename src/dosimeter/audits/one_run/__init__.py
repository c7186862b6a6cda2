"""One training run with canaries put in by coins."""

from dosimeter.audits.one_run.run import audit_one_run

__all__ = ["audit_one_run"]
