"""A table, a generator that is a little off, and models that know the records they were given."""

import numpy as np

COLUMNS = 4
WORDS = ["red", "green", "blue", "stone", "river", "cloud", "winter", "summer", "bread", "salt", "iron", "moss"]


def draw(count, seed, *, real=True):
    """A table whose generated twin differs a little: the label depends on another column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, COLUMNS))
    X[:, 3] = X[:, 0] * (0.5 if real else 0.3) + X[:, 3]
    y = (X[:, 0] + X[:, 1] + rng.normal(size=count) > 0).astype(np.int64)
    return X, y


def sampler(count, seed):
    return draw(count, seed, real=False)


def memoriser(X, y, strength):
    """A model that is sure of the labels of the records it was given, and a plain rule for all others."""
    known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}

    def logits(rows):
        plain = 1.5 * (rows[:, 0] + rows[:, 1])
        sign = np.array([2.0 * known[r.tobytes()] - 1.0 if r.tobytes() in known else 0.0 for r in rows])
        return np.stack([np.zeros(len(rows)), plain + strength * sign], axis=1)

    return logits
