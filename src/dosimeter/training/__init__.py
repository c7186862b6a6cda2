"""Training: what the audits train themselves."""
