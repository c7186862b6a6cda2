"""Softmax regression with full-batch DP gradient descent, in NumPy: differential privacy without a framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Gaussian


class DpLogisticRegression:
    """Fit a softmax regression by DP-SGD on the full batch (Abadi et al., 2016, Alg. 1).

    Each step adds Gaussian noise to the sum of the records' clipped gradients. The gradient of one record is
    (p − onehot) ⊗ (x, 1), so its norm is ‖p − onehot‖ · √(‖x‖² + 1): the clipped sum is one matrix product, and no
    gradient of a single record is ever stored. Scale features to about unit size by public bounds: a scale learnt from
    the records leaks.

    Args:
        noise_multiplier: The noise over the clipping norm; 0 trains without noise and without a guarantee.
        steps: The number of noisy steps.
        clip: The clipping norm.
        learning_rate: The learning rate.
        seed: Decides the noise.

    Raises:
        InputError: If an argument is out of range.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> model = DpLogisticRegression(noise_multiplier=1.0).fit(x, x[:, 0] > 0.5)
    >>> model.score(x, x[:, 0] > 0.5) > 0.9
    True
    >>> model.mechanism.steps
    100
    """

    def __init__(
        self,
        *,
        noise_multiplier: float,
        steps: int = 100,
        clip: float = 1.0,
        learning_rate: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.noise_multiplier = check.within(
            "noise_multiplier", noise_multiplier, 0.0, np.inf, "pass the noise over the clipping norm", include="[)"
        )
        self.steps = check.whole("steps", steps, 1, "pass the number of noisy steps")
        self.clip = check.within("clip", clip, 0.0, np.inf, "pass the clipping norm, e.g. 1", include="()")
        self.learning_rate = check.within("learning_rate", learning_rate, 0.0, np.inf, "pass e.g. 1", include="()")
        self.seed = check.seed(seed)

    @property
    def mechanism(self) -> Gaussian:
        """The mechanism that was run, for accountants."""
        if self.noise_multiplier == 0:
            raise InputError("noise_multiplier is 0: this training has no guarantee; train with noise first.")
        return Gaussian(self.noise_multiplier, self.steps)

    def fit(self, features: npt.ArrayLike, labels: npt.ArrayLike) -> DpLogisticRegression:
        """Train on all records in every step, and return the model itself."""
        x, y = np.asarray(features, float), np.asarray(labels)
        if x.ndim != 2 or y.shape != x.shape[:1] or y.size == 0:
            raise InputError(
                f"features must be (n, d) and labels (n,), got {x.shape} and {y.shape}; pass one label for each record."
            )
        self.classes_, index = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise InputError(f"labels hold one class only ({check.show(self.classes_[0])}); pass at least two.")
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        inputs = np.column_stack([x, np.ones(len(x))])
        norms = np.sqrt(np.einsum("ij,ij->i", inputs, inputs))
        target = np.eye(self.classes_.size)[index]
        weights = np.zeros((inputs.shape[1], self.classes_.size))
        for _ in range(self.steps):
            error = _softmax(inputs @ weights) - target
            size = np.sqrt(np.einsum("ij,ij->i", error, error)) * norms
            error *= np.minimum(1.0, self.clip / np.maximum(size, 1e-300))[:, None]
            noise = rng.normal(0.0, self.noise_multiplier * self.clip, weights.shape)
            weights -= self.learning_rate / len(x) * (inputs.T @ error + noise)
        self.coef_ = weights
        return self

    def decision_function(self, features: npt.ArrayLike) -> FloatArray:
        """Logits, one column for each class."""
        x = np.asarray(features, float)
        return x @ self.coef_[:-1] + self.coef_[-1]

    def predict_proba(self, features: npt.ArrayLike) -> FloatArray:
        """Class probabilities."""
        return _softmax(self.decision_function(features))

    def predict(self, features: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most probable class."""
        return self.classes_[np.argmax(self.decision_function(features), axis=1)]

    def score(self, features: npt.ArrayLike, labels: npt.ArrayLike) -> float:
        """Accuracy."""
        return float(np.mean(self.predict(features) == np.asarray(labels)))


def _softmax(logits: FloatArray) -> FloatArray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
