"""Audits from TOML files: what may stand in one, what it audits, what it will take, and the run."""
