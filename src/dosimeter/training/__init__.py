"""Training: recipes, many models at once, DP-SGD, trainings of other libraries. Importing it does not import torch."""

from dosimeter.training.batched import Trained, train_many
from dosimeter.training.foreign import ForeignTrained, train_command, train_foreign
from dosimeter.training.logistic import DpLogisticRegression
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.planning import Plan
from dosimeter.training.recipe import Dirac, Model, Privacy, Recipe

__all__ = [
    "Dirac",
    "DpLogisticRegression",
    "ForeignTrained",
    "Model",
    "Neighbour",
    "Plan",
    "Privacy",
    "Recipe",
    "Trained",
    "Transcript",
    "train_command",
    "train_foreign",
    "train_many",
]
