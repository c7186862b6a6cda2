"""The data of the papers, ready to train on: `load("adult")`, splits by seed, halves by fair coins."""

from dosimeter.datasets.dataset import Dataset, half, split
from dosimeter.datasets.loading import load, names

__all__ = ["Dataset", "half", "load", "names", "split"]
