"""Audits: from evidence to one result that holds the bounds, what they mean, and what was checked."""
