"""Is a normal fit of the losses fair? Mixtures of normals against held-out losses, by the KS test ([ES] App. B.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.estimate import plain

MOST_FITTED = 5_000  # records used in a fit; the error of the fit is then far below what 1000 samples can show
_VARIANCE_FLOOR = 1e-8  # as a share of the variance of all losses
_MOST_STEPS = 300
_TOLERANCE = 1e-6  # gain in log-likelihood per record at which EM stops


class NormalMixture(NamedTuple):
    """A mixture of normals: weights, means and standard deviations of its components."""

    weights: FloatArray
    means: FloatArray
    sds: FloatArray


@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """KS statistics and p-values: one row for each sample size, one column for each number of components."""

    components: IntArray
    sample_sizes: IntArray
    statistics: FloatArray
    p_values: FloatArray
    log_likelihood: FloatArray
    """Mean log-likelihood of a held-out record under each mixture."""
    mixtures: tuple[NormalMixture, ...]
    fitted: int
    held_out: int

    def fewest_components(self, level: float = 0.05) -> int | None:
        """The smallest number of components that no sample size rejects at `level`; None if there is none."""
        limit = check.within("level", level, 0.0, 1.0, "pass e.g. 0.05", include="()")
        passed = (self.p_values >= limit).all(axis=0)
        return int(self.components[passed].min()) if passed.any() else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        fields = {name: plain(value) for name, value in vars(self).items() if name != "mixtures"}
        return fields | {"mixtures": [plain(mixture._asdict()) for mixture in self.mixtures]}


def goodness_of_fit(
    losses: Any,
    *,
    components: Iterable[int] = range(1, 21),
    sample_sizes: Iterable[int] = range(100, 1001, 100),
    seed: int = 0,
) -> GoodnessOfFit:
    """Fit normal mixtures to half of the losses, and test samples of them against the other half.

    For each size and each number of components the two-sample KS test compares that many samples of the mixture with as
    many held-out losses. The p-value is exact for losses without ties, and too large with them.

    Args:
        losses: The losses of one kind of records.
        components: Numbers of normal laws in a mixture.
        sample_sizes: Sizes of the samples that are compared.
        seed: Decides the halves and the samples.

    Returns:
        The mixtures, and a p-value for each number of components and each size.

    Raises:
        InputError: If the losses are too few, or an argument is out of range.

    >>> import numpy as np
    >>> fit = goodness_of_fit(np.random.default_rng(0).normal(size=600), components=[1, 2], sample_sizes=[100])
    >>> len(fit.mixtures)
    2
    """
    raw = check.finite_array("losses", losses, minimum=4)
    scale = 2.0 ** (np.frexp(np.abs(raw).max())[1] - 1)  # a power of two: exact, and nothing overflows below
    values = raw / scale
    counts = _whole_list("components", components)
    sizes = _whole_list("sample_sizes", sample_sizes)
    rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
    shuffled = rng.permutation(values)
    fit, held = shuffled[: values.size // 2], shuffled[values.size // 2 :]
    if sizes.max() > held.size:
        raise InputError(
            f"sample_sizes holds {sizes.max()}, but only {held.size} of {values.size} losses are held out; "
            "pass smaller sizes or more losses."
        )
    fit = fit[:MOST_FITTED]
    if counts.max() > fit.size:
        raise InputError(f"components holds {counts.max()}, but only {fit.size} losses are fitted; pass fewer.")
    if np.ptp(fit) == 0:
        raise InputError(f"losses are all {fit[0] * scale:g} in the fitted half; a mixture needs values that differ.")
    mixtures = tuple(fit_mixture(fit, int(count)) for count in counts)
    statistics, p_values = np.empty((2, sizes.size, counts.size))
    for row, size in enumerate(sizes):
        drawn = np.stack([_sample(mixture, int(size), rng) for mixture in mixtures])
        real = rng.choice(held, int(size), replace=False)
        statistics[row], p_values[row] = ks_equal_sizes(drawn, np.broadcast_to(real, drawn.shape))
    likelihood = np.array([_log_density(held[:MOST_FITTED], mixture).mean() for mixture in mixtures])
    return GoodnessOfFit(
        components=counts,
        sample_sizes=sizes,
        statistics=statistics,
        p_values=p_values,
        log_likelihood=likelihood - np.log(scale),
        mixtures=tuple(NormalMixture(m.weights, m.means * scale, m.sds * scale) for m in mixtures),
        fitted=fit.size,
        held_out=held.size,
    )


def fit_mixture(values: FloatArray, components: int) -> NormalMixture:
    """Maximum-likelihood mixture of normals by EM, started at the quantiles, with a floor on the variances."""
    centre, unit = np.mean(values), np.std(values)
    x = (values - centre) / unit
    mixture = NormalMixture(
        np.full(components, 1 / components),
        np.quantile(x, (np.arange(components) + 0.5) / components),
        np.full(components, 1 / components),
    )
    reached = -np.inf
    for _ in range(_MOST_STEPS):
        joint = _log_joint(x, mixture)
        peak = joint.max(axis=0)
        share = np.exp(joint - peak)
        total = share.sum(axis=0)
        likelihood = float(np.mean(np.log(total) + peak))
        if likelihood - reached < _TOLERANCE:
            break
        reached = likelihood
        share /= total
        mass = np.maximum(share.sum(axis=1), 1e-12)
        means = share @ x / mass
        variances = np.maximum(share @ (x * x) / mass - means**2, _VARIANCE_FLOOR)
        mixture = NormalMixture(mass / mass.sum(), means, np.sqrt(variances))
    return NormalMixture(mixture.weights, centre + unit * mixture.means, unit * mixture.sds)


def ks_equal_sizes(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two-sided two-sample KS statistics and exact p-values, row by row, for samples of one size.

    With n values on both sides P[D ≥ h/n] = 2 Σ_{j≥1} (−1)^{j−1} C(2n, n−jh) / C(2n, n) (Gnedenko and Korolyuk).
    """
    size = first.shape[1]
    pooled = np.concatenate([first, second], axis=1)
    order = np.argsort(pooled, axis=1, kind="stable")
    ordered = np.take_along_axis(pooled, order, axis=1)
    walk = np.cumsum(np.where(order < size, 1, -1), axis=1)
    last_of_tie = np.concatenate([ordered[:, 1:] != ordered[:, :-1], np.ones((len(ordered), 1), bool)], axis=1)
    height = np.where(last_of_tie, np.abs(walk), 0).max(axis=1)
    steps = np.arange(1, size // max(1, int(height.min())) + 1)
    jump = steps * np.maximum(height, 1)[:, None]
    kept = np.minimum(jump, size)
    log_share = 2 * special.gammaln(size + 1) - special.gammaln(size - kept + 1) - special.gammaln(size + kept + 1)
    terms = np.where(jump <= size, np.exp(log_share), 0.0) * np.where(steps % 2 == 1, 1.0, -1.0)
    p_values = np.where(height == 0, 1.0, np.clip(2 * terms.sum(axis=1), 0.0, 1.0))
    return height / size, p_values


def _log_joint(x: FloatArray, mixture: NormalMixture) -> FloatArray:
    """ln of weight times density, one row for each component."""
    scaled = (x - mixture.means[:, None]) / mixture.sds[:, None]
    constant = np.log(mixture.weights) - np.log(mixture.sds) - 0.5 * np.log(2 * np.pi)
    result: FloatArray = constant[:, None] - 0.5 * scaled * scaled
    return result


def _log_density(x: FloatArray, mixture: NormalMixture) -> FloatArray:
    result: FloatArray = special.logsumexp(_log_joint(x, mixture), axis=0)
    return result


def _sample(mixture: NormalMixture, size: int, rng: np.random.Generator) -> FloatArray:
    which = rng.choice(mixture.weights.size, size, p=mixture.weights)
    return rng.normal(mixture.means[which], mixture.sds[which])


def _whole_list(name: str, values: Iterable[int]) -> IntArray:
    listed = isinstance(values, Iterable) and not isinstance(values, np.ndarray)
    array = check.finite_array(name, check.listed(name, values, "pass whole numbers") if listed else values)
    bad = (array < 1) | (array > 1e9) | (array != np.floor(array))
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(f"{name}[{index}] is {array[index]:g}; {name} must hold whole numbers from 1 to 1e9.")
    return array.astype(np.int64)
