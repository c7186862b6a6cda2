"""A model of which only members are known."""

from dosimeter.audits.members_only.run import audit_members_only

__all__ = ["audit_members_only"]
