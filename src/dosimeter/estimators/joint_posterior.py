"""The joint posterior of ε (Zanella-Béguelin et al., ICML 2023) by one-dimensional quadrature: cdf, density, quantiles.

FNR ~ Beta(FN+½, TP+½) and FPR ~ Beta(FP+½, TN+½), independent. F(ε) = P[(FNR, FPR) ∈ R(ε, δ)] and
1 − F = G(FNR, FPR) + G(1−FNR, 1−FPR), where G is the mass under the lower boundary of the region: a
one-dimensional integral of a regularised incomplete beta.

The integral runs over an angle θ, x = sin²θ. There a Beta(k+½, m+½) density is sin²ᵏθ · cos²ᵐθ up to a constant:
smooth at both ends, and log-concave with a curvature of at least 2(√k+√m)².
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, IntArray

Rows = IntArray | slice
CountRows = tuple[FloatArray, FloatArray, FloatArray, FloatArray]  # fn, tp, fp, tn

_DROP = 31.0  # a posterior is cut off where its log-density lies this far below its peak: less than 1e-13 is lost
_LARGEST = 700.0  # 1 − F is below 1e-140 from here on for any counts up to 1e9
_ROWS = 1 << 11  # posteriors integrated at once: bounds the memory

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


# --- the posterior of one rate ----------------------------------------------------------------------------


class _Beta(NamedTuple):
    """Beta(k+½, m+½) in the angle θ: the peak of its density, and the ends of the part that matters."""

    k: FloatArray
    m: FloatArray
    up: FloatArray  # n/k, or 0 where k is 0
    down: FloatArray  # n/m, or 0 where m is 0
    mode: FloatArray
    log_peak: FloatArray
    left: FloatArray
    right: FloatArray

    def log_density(self, gap: FloatArray) -> FloatArray:
        """Log-density of θ at gap = x − k/n. The terms of first order in the gap cancel, so it is small at the mode."""
        rise = np.log1p(np.maximum(gap * self.up, 1e-16 - 1))
        rise *= self.k
        fall = np.log1p(np.maximum(gap * -self.down, 1e-16 - 1))
        fall *= self.m
        rise += fall
        rise += self.log_peak
        return rise


def _beta(k: FloatArray, m: FloatArray) -> _Beta:
    n = k + m
    up = np.where(k > 0, n / np.maximum(k, 1.0), 0.0)
    down = np.where(m > 0, n / np.maximum(m, 1.0), 0.0)
    root_k, root_m = np.sqrt(k), np.sqrt(m)
    mode = np.arctan2(root_k, root_m)
    # k ln k + m ln m − n ln n of the density at its mode cancels against the same terms of Stirling's formula.
    log_peak = 0.5 * np.log(2 * n / np.pi) + _stirling(n, 1.0) - _stirling(k, 0.5) - _stirling(m, 0.5)
    # The curvature puts the cut no further out than `reach`. Newton steps on the convex drop of the log-density,
    # taken from outside, come closer to it and never pass it.
    reach = np.sqrt(_DROP) / (root_k + root_m)
    ends = np.array([mode - reach, mode + reach])
    inside = (ends > 0) & (ends < np.pi / 2)
    theta = np.where(inside, ends, 0.5 + mode / 4)
    level = _Beta(k, m, up, down, mode, np.full_like(k, _DROP), mode, mode)
    for _ in range(2):
        above = level.log_density(np.sin(theta - mode) * np.sin(theta + mode))
        tangent = np.tan(theta)
        slope = np.where(inside, 2 * (k / tangent - m * tangent), 1.0)
        theta = np.where(inside, theta - above / slope, ends)
    left, right = np.maximum(theta[0], 0.0), np.minimum(theta[1], np.pi / 2)
    return _Beta(k, m, up, down, mode, log_peak, left, right)


def _stirling(k: FloatArray, shift: float) -> FloatArray:
    """lnΓ(k+shift) − (k ln k − k + (shift−½) ln k + ½ ln 2π) for a shift of ½ or 1, accurate for any k."""
    few = np.minimum(k, 32.0)
    direct = special.gammaln(few + shift) - special.xlogy(few + (shift - 0.5), few) + few - 0.5 * np.log(2 * np.pi)
    half, one = (-1 / 24, 7 / 2880, -31 / 40320, 127 / 430080), (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
    a, b, c, d = half if shift == 0.5 else one
    r = 1 / np.maximum(k, 32.0)
    q = r * r
    return np.where(k < 32.0, direct, r * (a + q * (b + q * (c + q * d))))


def _cdf(k: FloatArray, m: FloatArray, x: FloatArray, rest: FloatArray) -> FloatArray:
    """P[Beta(k+½, m+½) ≤ x] with rest = 1 − x given to its own precision."""
    flip = x > 0.5
    value = special.betainc(np.where(flip, m, k) + 0.5, np.where(flip, k, m) + 0.5, np.where(flip, rest, x))
    return np.where(flip, 1 - value, value)


# --- the joint posterior ----------------------------------------------------------------------------------


class JointPosterior(NamedTuple):
    """FNR and FPR posteriors, fields of shape (2, rows): the guesses as they are, and every guess inverted."""

    fnr: _Beta
    fpr: _Beta

    def take(self, rows: Rows) -> JointPosterior:
        return JointPosterior(*(_Beta(*(field[:, rows] for field in beta)) for beta in self))


def joint_posterior(counts: CountRows, inverted: CountRows | None = None) -> JointPosterior:
    """`inverted` gives other counts for the part with inverted guesses, to bound a block of thresholds."""
    fn, tp, fp, tn = counts
    fn2, tp2, fp2, tn2 = counts if inverted is None else inverted
    both = _beta(np.array([[fn, tp2], [fp, tn2]]), np.array([[tp, fn2], [tn, fp2]]))
    return JointPosterior(_Beta(*(field[0] for field in both)), _Beta(*(field[1] for field in both)))


def cdf_and_density(
    posterior: JointPosterior, epsilon: FloatArray, delta: float, *, density: bool
) -> tuple[FloatArray, FloatArray]:
    """F(ε) and dF/dε row by row (zeros for the second unless asked for)."""
    if epsilon.size > _ROWS:
        parts = [slice(i, i + _ROWS) for i in range(0, epsilon.size, _ROWS)]
        done = [cdf_and_density(posterior.take(p), epsilon[p], delta, density=density) for p in parts]
        return np.concatenate([d[0] for d in done]), np.concatenate([d[1] for d in done])
    mass, slope = _under_boundary(posterior.fnr, posterior.fpr, epsilon, delta, density)
    return np.maximum(1 - mass[0] - mass[1], 0.0), slope[0] + slope[1]


def _under_boundary(
    x: _Beta, y: _Beta, epsilon: FloatArray, delta: float, density: bool
) -> tuple[FloatArray, FloatArray]:
    """G = P[FPR < lo(FNR)] and −dG/dε of both parts, with lo(x) = max(1−δ−e^ε x, (1−δ−x) e^−ε).

    The two branches of lo meet at x = kink = (1−δ)/(1+e^ε) and are integrated apart. On each, with Θ the angle at
    which it reaches 0, lo = (sin²Θ − sin²θ)/scale = sin(Θ−θ) sin(Θ+θ)/scale; the variable is the gap Θ−θ. lo is its
    own inverse, so the x for which the inner cdf is 1 are known: their mass is a cdf of FNR.
    """
    top = 1 - delta
    exponent = -np.minimum(epsilon, _LARGEST)
    shrink = np.exp(exponent)
    kink = top * shrink / (1 + shrink)
    scale = np.array([shrink, 1 / shrink])[:, None]
    corner_x = top * np.array([shrink, np.ones_like(shrink)])[:, None]
    rest_x = delta - top * np.array([np.expm1(exponent), np.zeros_like(shrink)])[:, None]
    corner = np.arctan2(np.sqrt(corner_x), np.sqrt(rest_x))

    # [branch, end of y, part, row]: where the inner cdf is no longer 0 and where it is all but 1
    y_ends = np.sin([y.left, y.right]) ** 2
    ends = np.array([np.maximum(np.minimum(y_ends, top), kink), np.minimum(y_ends, kink)])
    x_ends = np.array([(top - ends[0]) * shrink, np.minimum(kink + (kink - ends[1]) / shrink, top)])
    angle = np.arcsin(np.sqrt(x_ends))
    sine = ends * scale[:, None] / np.sin(corner[:, None] + angle)  # of the gap: exact where the gap is small
    gaps = np.where(sine < 0.5, np.arcsin(np.minimum(sine, 0.5)), corner[:, None] - angle)
    first = np.maximum(gaps[:, 0], corner - x.right)
    last = np.minimum(gaps[:, 1], corner - x.left)

    full = np.where(y_ends[1] > kink, corner[0] - gaps[0, 1], corner[1] - gaps[1, 1])
    mass = (full >= x.right).astype(float)
    partly = (full > x.left) & (full < x.right)
    if partly.any():
        theta = full[partly]
        mass[partly] = _cdf(x.k[partly], x.m[partly], np.sin(theta) ** 2, np.cos(theta) ** 2)
    slope = np.zeros_like(mass)

    (branch, part, row), gap, weight = _nodes(y, shrink, corner, first, last, delta)
    if not row.size:
        return mass, slope
    turn = corner[branch, 0, row, None]
    stretch = 1 / scale[branch, 0, row, None]
    steep = (branch == 0)[:, None]
    fnr, fpr = (_Beta(*(field[part, row, None] for field in beta)) for beta in (x, y))
    theta = turn - gap
    weight *= np.exp(fnr.log_density(np.sin(theta - fnr.mode) * np.sin(theta + fnr.mode)))
    bound = np.sin(gap) * np.sin(turn + theta) * stretch
    rest = np.where(steep, delta + np.sin(theta) ** 2 * stretch, 1 - bound)
    place, size = part * epsilon.size + row, mass.size
    inner = weight * _cdf(fpr.k, fpr.m, bound, rest)
    mass += np.bincount(place, inner.sum(axis=1), size).reshape(mass.shape)
    if density:
        n = fpr.k + fpr.m
        off = np.where(bound > 0.5, fpr.m / n - rest, bound - fpr.k / n)
        weight *= np.exp(fpr.log_density(off))
        weight *= np.where(steep, rest - delta, bound) / (2 * np.sqrt(np.maximum(bound * rest, 1e-300)))
        slope += np.bincount(place, weight.sum(axis=1), size).reshape(mass.shape)
    return mass, slope


def _nodes(
    y: _Beta, shrink: FloatArray, corner: FloatArray, first: FloatArray, last: FloatArray, delta: float
) -> tuple[tuple[IntArray, IntArray, IntArray], FloatArray, FloatArray]:
    """Where to evaluate: (branch, part, row) of every integral, its gaps, and their weights.

    s = √gap removes the square root of the inner cdf at gap 0 when FP is 0. δ > 0 leaves two near-singularities:
    √(gap² + 2ψ·gap) there on the flat branch, sin²ψ = δ, and √(a² + θ²) at θ = 0 on the steep branch when TN is 0,
    a² = δ e^−ε. For counts of 0 and 1 their neighbourhood is integrated apart, in a variable that is smooth there.
    """
    lower, upper = first, last
    special_rows = delta > 1e-25 and bool((y.k <= 1).any() or (y.m <= 1).any())
    if special_rows:
        psi, a = np.arcsin(np.sqrt(delta)), np.sqrt(delta) * np.sqrt(shrink)
        reach = np.maximum(5 * a, np.sqrt(a * np.maximum(corner[0] - first[0], 0.0)))
        cut_steep = np.where(y.m <= 1, np.minimum(corner[0] - np.minimum(reach, corner[0] / 2), last[0]), last[0])
        cut_steep = np.maximum(cut_steep, first[0])
        reach = np.maximum(10 * psi, np.sqrt(psi * np.maximum(last[1], 0.0)))
        cut_flat = np.where(y.k <= 1, np.minimum(np.maximum(reach, first[1]), last[1]), first[1])
        lower, upper = np.array([first[0], cut_flat]), np.array([cut_steep, last[1]])
    branch, part, row = where = np.nonzero(upper > lower)
    start, stop = np.sqrt(lower[where]), np.sqrt(upper[where])
    width = (stop - start)[:, None]
    s = start[:, None] + width * _NODES
    gap, weight = s * s, s * (2 * width * _WEIGHTS)
    if not special_rows:
        return (branch, part, row), gap, weight

    steep = np.nonzero(last[0] > cut_steep)
    turn, a = corner[0, 0, steep[1], None], a[steep[1], None]
    start, stop = (np.arcsinh((turn - end[steep][:, None]) / a) for end in (last[0], cut_steep))
    t = start + (stop - start) * _NODES
    gaps = [gap, turn - a * np.sinh(t)]
    weights = [weight, a * np.cosh(t) * (stop - start) * _WEIGHTS]

    flat = np.nonzero(cut_flat > first[1])
    start, stop = (2 * np.arcsinh(np.sqrt(end[flat][:, None] / (2 * psi))) for end in (first[1], cut_flat))
    t = start + (stop - start) * _NODES
    gaps.append(2 * psi * np.sinh(t / 2) ** 2)
    weights.append(psi * np.sinh(t) * (stop - start) * _WEIGHTS)

    branch = np.concatenate([branch, np.zeros_like(steep[1]), np.ones_like(flat[1])])
    part = np.concatenate([part, steep[0], flat[0]])
    row = np.concatenate([row, steep[1], flat[1]])
    return (branch, part, row), np.concatenate(gaps), np.concatenate(weights)


def rough_quantile(counts: CountRows, delta: float, z: FloatArray | float) -> FloatArray:
    """Rough quantile of ε: those of the four log-ratios, taken as normal with a correction for skewness."""
    fn, tp, fp, tn = counts

    def cumulants(k: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        # about those of ln Beta(k+½, n−k+½), also at k = 0
        return np.log((k + 0.14) / (n + 0.28)), 1 / (k + 0.2) - 1 / (n + 0.4), 1 / (k + 0.25) ** 2 - 1 / (n + 0.5) ** 2

    def term(top: tuple[FloatArray, ...], bottom: tuple[FloatArray, ...]) -> FloatArray:
        rate = np.exp(top[0])
        left = np.maximum(rate - delta, rate / 10)
        gain = rate / left
        variance = top[1] * gain * gain + bottom[1]
        mean = np.log(left) - bottom[0] - 0.5 * top[1] * gain * (gain - 1)
        skew = (bottom[2] - top[2] * gain**3) / variance
        return mean + z * np.sqrt(variance) + skew * bend

    bend = (np.minimum(z * z, 4.0) - 1) / 6
    miss, hit = cumulants(fn, fn + tp), cumulants(tp, fn + tp)
    alarm, quiet = cumulants(fp, fp + tn), cumulants(tn, fp + tn)
    terms = [term(hit, alarm), term(quiet, miss), term(miss, quiet), term(alarm, hit)]
    return np.maximum(np.maximum.reduce(terms), 0.0)


def quantile(counts: CountRows, probability: FloatArray, delta: float) -> FloatArray:
    """F⁻¹ row by row, 0 where F(0) ≥ probability: Newton steps inside a bracket.

    The steps are taken on Φ⁻¹(F), which is nearly straight, and on F itself where F starts as a line from 0. Where
    two evaluations show it smooth, the last step goes through both (inverse cubic Hermite interpolation).
    """
    posterior = joint_posterior(counts)
    probability = np.clip(probability, 1e-13, 1 - 1e-13)
    goal = special.ndtri(probability)
    epsilon = rough_quantile(counts, delta, goal)
    low, high = np.zeros_like(epsilon), np.full_like(epsilon, np.inf)
    zero_open = np.full(epsilon.shape, delta > 0)  # without δ, F(0) = 0 is known
    old = np.full((3, epsilon.size), np.inf)  # ε, Φ⁻¹(F) − goal and dε/dΦ⁻¹(F) of the evaluation before
    active = np.arange(epsilon.size)
    for attempt in range(200):
        here, wanted = epsilon[active], probability[active]
        rows = posterior if active.size == epsilon.size else posterior.take(active)
        cdf, density = cdf_and_density(rows, here, delta, density=True)
        below = cdf < wanted
        low[active] = floor = np.where(below, here, low[active])
        high[active] = ceiling = np.where(below, high[active], here)
        zero_open[active] &= here > 0

        score = special.ndtri(np.minimum(np.maximum(cdf, 1e-12), 1 - 1e-15))
        miss = score - goal[active]
        lined = (cdf < 1e-12) | ((cdf < 0.5) & (cdf >= 0.6 * here * density))
        old_here, old_miss, old_rate = old[:, active]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rate = np.exp(-score * score / 2) / (np.sqrt(2 * np.pi) * density)
            step = here - np.where(lined, (cdf - wanted) / density, miss * rate)
            span = old_miss - miss
            chord = (old_here - here) / span
            cubic = (rate + old_rate - 2 * chord) / (span * span)
            last = here - miss * rate + miss * miss * ((chord - rate) / span - old_miss * cubic)
            bent = np.maximum(np.abs(rate - old_rate), np.abs(rate - chord)) > 0.5 * rate * np.abs(span)
            close = (np.abs(miss * old_miss) < 1e-6) & ~bent & ~lined
        step = np.where(close & np.isfinite(last), last, step)
        usable = (step >= floor) & (step <= np.minimum(ceiling, 3 * here + 5)) & (attempt < 40)
        middle = np.where(ceiling < np.inf, floor + (np.minimum(ceiling, 1e9) - floor) / 2, 2 * here + 1)
        middle = np.where(zero_open[active] & ~(step > 0), 0.0, middle)
        at_zero = (here == 0) & ~below
        epsilon[active] = np.where(at_zero, 0.0, np.where(usable, step, middle))
        old[:, active] = np.where(lined, np.inf, (here, miss, rate))
        exact = usable & (close | (np.abs(miss) < 1e-7))
        active = active[~(at_zero | exact | (ceiling - floor <= 4e-16 * np.maximum(floor, 0.01)))]
        if not active.size:
            break
    return epsilon
