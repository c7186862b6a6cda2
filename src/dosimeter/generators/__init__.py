"""Generators: members to synthetic non-members."""
