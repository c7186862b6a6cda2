"""Attacks: arrays of outputs to membership scores, high for a likely member."""
