"""Which records D and D′ differ in: the pairs of Figure 4, with equal or different labels; the paper's distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from dosimeter.audits.gradients.result import GradientsDetails
from dosimeter.datasets import sensitivity
from dosimeter.datasets.distances import SSIM, prepare, unit_rows
from dosimeter.engine import Store

from ..shared import announce
from .trained import CLIP, CONFIG, RATE, STEPS, Parts, Way, noise, observed, parts

Floats = npt.NDArray[np.float64]
BOUNDED = Way("bounded", "global")
MOST_COMPARED = 300  # records on a side, whose gradients are held at once
CHECKPOINTS = (1, 10, STEPS)


@dataclass(frozen=True)
class Pair:
    """A record of D, one of the others, and how far they are apart."""

    removed: int
    added: int
    distance: float
    same_label: bool


@dataclass(frozen=True)
class Watched:
    """The trainings of one pair: the local sensitivity in each step, and the adversary's advantage."""

    name: str
    pair: Pair
    median: Floats
    low: Floats
    high: Floats
    advantage: float

    @property
    def typical(self) -> float:
        """The median sensitivity, mean over the steps."""
        return float(self.median.mean())


def choose(found: Parts, *, most: bool, labels: str = "any", count: int = 1) -> list[Pair]:
    """The pairs farthest apart or nearest to each other: any, or with "equal" or "different" labels."""
    (x, y), (ux, uy) = found.inside, found.others
    pairs = []
    for label in np.unique(y) if labels != "any" else [None]:
        rows = np.flatnonzero((y == label) | (label is None))
        columns = np.flatnonzero((uy == label) == (labels == "equal")) if labels != "any" else np.arange(len(uy))
        if not columns.size:
            continue
        asked = min(count, rows.size * columns.size)
        best = sensitivity.bounded(x[rows], ux[columns], distance=found.setting.distance, count=asked, most=most)
        assert best.other_rows is not None
        for row, column, away in zip(rows[best.rows], columns[best.other_rows], best.distances, strict=True):
            pairs.append(Pair(int(row), int(column), float(away), bool(y[row] == uy[column])))
    return sorted(pairs, key=lambda pair: -pair.distance if most else pair.distance)[:count]


def watch(size: str, which: str, name: str, pair: Pair, store: Store | None) -> Watched:
    """Train models with global noise on D or on D′, which differ in this pair."""
    from dosimeter.training import Neighbour

    found, count = parts(size, which), CONFIG[size][which]["pairs"]
    announce(f"identifiability, {size}: {found.name}, {name}, {count} models")
    few = found.test[0][:20], found.test[1][:20]
    swap = Neighbour(removed=pair.removed, added=pair.added)
    details = observed(found, BOUNDED, count, store, neighbour=swap, test=few).details
    assert isinstance(details, GradientsDetails) and details.sensitivities is not None
    assert details.advantage is not None
    seen = details.sensitivities
    median, low, high = (np.array(values, np.float64) for values in (seen.median, seen.low, seen.high))
    return Watched(name, pair, median, low, high, details.advantage.trajectory)


def extremes(size: str, which: str, count: int, store: Store | None) -> list[Watched]:
    """The pairs of Figure 4: so many farthest ones, and as many nearest ones."""
    found = parts(size, which)
    named = [(f"farthest {k}", p) for k, p in enumerate(choose(found, most=True, count=count), start=1)]
    named += [(f"nearest {k}", p) for k, p in enumerate(choose(found, most=False, count=count), start=1)][::-1]
    return [watch(size, which, name, pair, store) for name, pair in named]


def by_label(size: str, which: str, store: Store | None) -> dict[tuple[str, str], Watched]:
    """The farthest and the nearest pair with equal and with different labels."""
    found = parts(size, which)
    cells = {}
    for labels in ("equal", "different"):
        for reach, most in (("farthest", True), ("nearest", False)):
            (pair,) = choose(found, most=most, labels=labels)
            cells[reach, labels] = watch(size, which, f"{reach}, {labels} labels", pair, store)
    return cells


# --- distances against gradients --------------------------------------------------------------------------


@dataclass(frozen=True)
class Follows:
    """How well a distance follows the local sensitivity over all pairs of some records: rank correlations."""

    distance: str
    over_x: float
    over_xy: float
    """With the label as one more part: the distance over its median, plus 1 where the labels differ."""
    equal: float
    different: float
    reached: float
    """The sensitivity of the pair farthest apart over the largest of all pairs."""


@dataclass(frozen=True)
class Comparison:
    """All distances of a data set, and the mean sensitivity of pairs with equal and with different labels."""

    follows: tuple[Follows, ...]
    equal: float
    different: float
    pairs: int


def compare(size: str, which: str, store: Store | None) -> Comparison:
    """Compare the distances of records with those of their clipped gradients, over noisy trainings at three steps."""
    found = parts(size, which)
    rows, columns = (slice(0, MOST_COMPARED) for _ in range(2))
    (x, y), (ux, uy) = found.inside, found.others
    local = _sensitivities(found, CONFIG[size][which]["sampled"], store)
    same = y[rows][:, None] == uy[columns][None, :]
    flat, lists = local.ravel(), []
    for name in found.setting.distances:
        away = _distances(name, x[rows], ux[columns])
        both = away / np.median(away) + ~same
        lists.append(
            Follows(
                name,
                _rank(away.ravel(), flat),
                _rank(both.ravel(), flat),
                _rank(away[same], local[same]),
                _rank(away[~same], local[~same]),
                float(flat[away.argmax()] / flat.max()),
            )
        )
    return Comparison(tuple(lists), float(local[same].mean()), float(local[~same].mean()), flat.size)


def _rank(first: Floats, second: Floats) -> float:
    return float(stats.spearmanr(first, second).statistic)


def _distances(name: str, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Floats:
    """All distances between two sets of records."""
    if name in SSIM:
        a, b = (np.asarray(values[:, 0], np.float64) for values in (first, second))
    else:
        a, b = (np.asarray(values, np.float64).reshape(len(values), -1) for values in (first, second))
    if name == "cosine":
        a, b = unit_rows("D", a), unit_rows("U", b)
    pairs = prepare(name, a, b, refine=False)
    return np.asarray(pairs.distance(pairs.block(slice(0, len(a)), slice(0, len(b)))), np.float64)


def _sensitivities(found: Parts, models: int, store: Store | None) -> Floats:
    """‖ḡ(x) − ḡ(x′)‖ for records of D and others, mean over models and steps of noisy training."""
    from dosimeter.training import Privacy, Recipe, train_many

    (x, y), (ux, uy) = found.inside, found.others
    dp = Privacy(noise(BOUNDED.belief, found.setting.delta, neighbours="replace"), CLIP)
    members = np.ones((models, len(x)), bool)
    total: Floats = np.zeros((min(len(x), MOST_COMPARED), min(len(ux), MOST_COMPARED)))
    for steps in CHECKPOINTS:
        recipe = Recipe("adam", RATE, steps=steps, batch_size=None, dp=dp)
        trained = train_many(
            found.setting.factory, recipe, (x, y), members, range(models), return_models=True, store=store
        )
        for one in trained:
            module = one.module(found.setting.factory)
            a, b = (clipped(module, *records) for records in ((x, y), (ux, uy)))
            squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
            total += np.sqrt(np.maximum(squares, 0.0))
    return total / (models * len(CHECKPOINTS))


def clipped(module: Any, x: npt.NDArray[Any], y: npt.NDArray[Any], clip: float = CLIP) -> npt.NDArray[np.float32]:
    """The clipped gradients of the first records, one row for each."""
    import torch

    weights = {name: value.detach() for name, value in module.named_parameters()}

    def loss(parameters: Any, record: Any, label: Any) -> Any:
        logits = torch.func.functional_call(module, parameters, (record[None],))
        return torch.nn.functional.cross_entropy(logits, label[None])

    few = torch.tensor(x[:MOST_COMPARED]), torch.tensor(y[:MOST_COMPARED])
    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, *few)
    rows = torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1)
    shrunk = rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)
    found: npt.NDArray[np.float32] = shrunk.numpy()
    return found
