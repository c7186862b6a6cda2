"""Evidence to Estimate: one module for each method."""
