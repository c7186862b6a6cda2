"""Training: recipes, many models at once, DP-SGD, trainings of other libraries. Importing it does not import torch.

In the order in which a newcomer reads it:

1. `recipe`: what a training is, as a value. `devices`: from which seed, in which precision.
2. `sequential`, with `steps` and `draws`: the plain loop, which every other loop must agree with; losses, optimisers
   and the step of DP-SGD; what chance decides.
3. `batched` (`train_many`), with `arguments`, `planning` and `groups`: many models, the checks before any work, the
   loop that suits, and one task of the engine.
4. The fast loops: `dense` with `dense_micro`, `functional`, and `convolutional` with `conv_chain` and `by_record`;
   `chain` reads what a module is.
5. `foreign`: functions and commands of the caller; `asking`: how a trained model is asked, and on which device.
6. `identity` and `reach`: what keys of a store know of a function; `cargo`: how it gets to another process.
7. Beside all this: `neighbour` (transcripts of gradients), `networks` with `text_modules` and `tokens`, `logistic`.
"""

from dosimeter.training.asking import Observed
from dosimeter.training.batched import Trained, train_many
from dosimeter.training.foreign import ForeignTrained, train_command, train_foreign
from dosimeter.training.logistic import DpLogisticRegression
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.planning import Plan
from dosimeter.training.recipe import Dirac, Model, Privacy, Recipe
from dosimeter.training.warm_start import warm_start

__all__ = [
    "Dirac",
    "DpLogisticRegression",
    "ForeignTrained",
    "Model",
    "Neighbour",
    "Observed",
    "Plan",
    "Privacy",
    "Recipe",
    "Trained",
    "Transcript",
    "train_command",
    "train_foreign",
    "train_many",
    "warm_start",
]
