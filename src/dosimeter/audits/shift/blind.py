"""The blind baseline: a classifier that never sees the model tries to tell members from non-members.

Each half of the records is scored by a classifier that was chosen and fitted on the other half. If members and
non-members are exchangeable, then given the training half and the records of the test half every relabelling of the
test half is equally likely, so the rank sum has an exact permutation p-value in each half. Twice the smaller of both
is valid whatever their dependence. (Permuting labels against cross-validated scores is not: those scores were
fitted with the labels.)
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.audits.shift.records import TEXT_CHARACTERS, WORD, standardised
from dosimeter.engine.threads import one_thread
from dosimeter.estimators.limits import auc_with_error, average_ranks
from dosimeter.evidence import Scores

MOST_COLUMNS = {"linear": 256, "trees": 64}
ENOUGH_TO_CHOOSE = 50  # records of either kind in a half; below it the linear classifier is taken unseen
WORD_COLUMNS = 1 << 16
CLASS_COLUMNS = 20
PERMUTED_BLOCK = 1 << 18
ENOUGH_ABOVE = 100  # relabellings at least as large as what was seen, after which the p-value is settled to a tenth


@dataclass(frozen=True, eq=False)
class Views:
    """The features that each candidate sees; those of the linear one may be a sparse matrix."""

    linear: Any
    trees: FloatArray


CANDIDATES = ("linear", "trees")


@dataclass(frozen=True, eq=False)
class Half:
    """The held-out scores of one half, the AUC with its standard error, and the p-value."""

    scores: Scores
    chosen: str
    auc: float
    error: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Blind:
    """Both halves together: the mean AUC with its interval, and twice the smaller p-value."""

    halves: tuple[Half, Half]
    auc: float
    low: float
    high: float
    p_value: float


def blind_baseline(
    views: Views, member: BoolArray, *, confidence: float, permutations: int, seeds: list[np.random.SeedSequence]
) -> Blind:
    """Cross-fit the candidates on two stratified halves.

    The interval is DeLong's for each half. The two AUCs depend on each other, so the standard error of their mean is
    taken as if they moved together, (s1 + s2) / 2, which no dependence exceeds; it is asymptotic, the p-value exact.
    """
    split, *rest = [np.random.default_rng(seed) for seed in seeds]
    second = _stratified(member, 0.5, split)
    halves = [
        _half(views, member, np.flatnonzero(second != turned), np.flatnonzero(second == turned), permutations, rng)
        for turned, rng in zip((True, False), rest, strict=True)
    ]
    auc = (halves[0].auc + halves[1].auc) / 2
    reach = float(ndtri((1 + confidence) / 2)) * (halves[0].error + halves[1].error) / 2
    p_value = min(1.0, 2 * min(half.p_value for half in halves))
    return Blind((halves[0], halves[1]), auc, max(0.0, auc - reach), min(1.0, auc + reach), p_value)


def cross_fitted_log_odds(views: Views, member: BoolArray, fold: IntArray) -> FloatArray:
    """The mean log-odds of the candidates for each record, fitted on the other folds."""
    log_odds = np.empty(member.size)
    for own in np.unique(fold):
        train, test = np.flatnonzero(fold != own), np.flatnonzero(fold == own)
        log_odds[test] = np.mean([_fit_and_score(name, views, member, train, test) for name in CANDIDATES], axis=0)
    return log_odds


def _stratified(member: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    """A random part that holds the given share of both kinds."""
    chosen = np.zeros(member.size, bool)
    for kind in (True, False):
        rows = rng.permutation(np.flatnonzero(member == kind))
        chosen[rows[: round(share * rows.size)]] = True
    return chosen


def _half(
    views: Views,
    member: BoolArray,
    train: IntArray,
    test: IntArray,
    permutations: int,
    rng: np.random.Generator,
) -> Half:
    chosen = _choose(views, member, train, rng)
    values = _fit_and_score(chosen, views, member, train, test)
    inside = member[test]
    scores = Scores(values[inside], values[~inside], independent=True)  # given the other half
    auc, error = auc_with_error(scores)
    return Half(scores, chosen, auc, error, rank_sum_p_value(values, inside, permutations, rng))


def _choose(views: Views, member: BoolArray, train: IntArray, rng: np.random.Generator) -> str:
    """The candidate that does best on a third of the training half, fitted on the rest of it."""
    inside = member[train]
    if min(inside.sum(), (~inside).sum()) < ENOUGH_TO_CHOOSE:
        return "linear"
    fit = _stratified(inside, 2 / 3, rng)
    auc = {}
    for name in CANDIDATES:
        values = _fit_and_score(name, views, member, train[fit], train[~fit])
        held = inside[~fit]
        auc[name] = Scores(values[held], values[~held]).auc
    return max(auc, key=lambda name: auc[name])


def _fit_and_score(name: str, views: Views, member: BoolArray, train: IntArray, test: IntArray) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    features, y = getattr(views, name), member[train]
    if isinstance(features, np.ndarray) and features.shape[1] > MOST_COLUMNS[name]:
        features = features[:, _telling_columns(views.linear[train], y, MOST_COLUMNS[name])]
    x, held = features[train], features[test]
    if not isinstance(x, np.ndarray):  # words that the training rows lack would have coefficient 0
        filled = np.unique(x.indices)
        x, held = x[:, filled], held[:, filled]
    if name == "linear":
        model: Any = LogisticRegression(C=1.0, max_iter=200)
    else:
        model = HistGradientBoostingClassifier(
            max_iter=60, learning_rate=0.1, max_leaf_nodes=15, max_bins=63, early_stopping=False, random_state=0
        )
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = model.fit(x, y).decision_function(held)
    return np.asarray(values, np.float64)


def _telling_columns(z: FloatArray, y: BoolArray, count: int) -> IntArray:
    """The standardised columns whose mean or spread differs most between the kinds in the training half."""
    weight = y / y.sum() - ~y / (~y).sum()
    squares = z**2
    spread = squares.std(axis=0)
    apart = np.maximum(np.abs(weight @ z), np.abs(weight @ squares) / np.where(spread > 0, spread, 1.0))
    return np.sort(np.argsort(-apart, kind="stable")[:count])


def rank_sum_p_value(
    values: FloatArray, inside: BoolArray, permutations: int, rng: np.random.Generator, *, enough: int = ENOUGH_ABOVE
) -> float:
    """P[rank sum of the members at least as large as seen] when all labellings are equally likely.

    (1 + b) / (1 + B) for b of B random labellings at least as large: valid for any size and any ties (Phipson and
    Smyth 2010, Eq. 2). Drawing ends early at the l-th labelling if that is the h-th as large, h = `enough`; then h / l
    is valid (Besag and Clifford 1991). When b = 0, Bernstein's inequality, which also holds for draws without
    replacement (Hoeffding 1963, Theorem 4), may prove less: below 1 / (1 + B) it alone decides, so the p-value stays
    valid.
    """
    ranks = average_ranks(values) - (values.size + 1) / 2
    few = min(int(inside.sum()), int((~inside).sum()))
    if 2 * inside.sum() > values.size:  # the smaller kind is drawn: fewer numbers, the same test
        inside, ranks = ~inside, -ranks
    seen = float(ranks[inside].sum())
    step = max(1, PERMUTED_BLOCK // values.size)
    atleast = 0
    for start in range(0, permutations, step):
        keys = rng.random((min(step, permutations - start), values.size))
        drawn = np.argpartition(keys, few - 1, axis=1)[:, :few]
        above = ranks[drawn].sum(axis=1) >= seen - 1e-6
        if atleast + above.sum() >= enough:
            last = np.flatnonzero(above)[enough - atleast - 1]
            return enough / float(start + last + 1)
        atleast += int(above.sum())
    p_value = (1 + atleast) / (1 + permutations)
    if atleast == 0 and seen > 0:
        spread = few * float((ranks**2).mean())
        p_value = min(p_value, math.exp(-(seen**2) / (2 * spread + 2 * float(ranks.max()) * seen / 3)))
    return p_value


def views_of(kind: str, members: Any, nonmembers: Any, labels: IntArray | None) -> Views:
    """The features that each candidate sees, the label and what is missing among them, but no membership.

    Images come as thumbnails.
    """
    classes = None if labels is None else _one_hot(labels)
    numbers = features_of(kind, members, nonmembers)
    if kind == "text":
        import scipy.sparse

        form = scipy.sparse.csr_matrix(standardised(numbers) / math.sqrt(numbers.shape[1]))
        parts = [_words(members + nonmembers), form]
        parts += [] if classes is None else [scipy.sparse.csr_matrix(classes)]
        return Views(scipy.sparse.hstack(parts, format="csr"), _beside(numbers, classes))
    return Views(_beside(standardised(numbers), classes), _beside(numbers, classes))


def features_of(kind: str, members: Any, nonmembers: Any) -> FloatArray:
    """Numbers for each record of both sides: what it holds and what is missing, or what a text looks like."""
    if kind == "text":
        return _form(members + nonmembers)
    both = np.concatenate([members, nonmembers])
    absent = np.isnan(both)
    return np.concatenate([both, absent[:, absent.any(axis=0)]], axis=1)


def _beside(features: FloatArray, classes: FloatArray | None) -> FloatArray:
    return features if classes is None else np.concatenate([features, classes], axis=1)


def _one_hot(labels: IntArray) -> FloatArray:
    """A column for each of the most frequent classes."""
    frequent = np.argsort(-np.bincount(labels), kind="stable")[:CLASS_COLUMNS]
    return (labels[:, None] == frequent).astype(np.float64)


def _words(texts: list[str]) -> Any:
    """Hashed words, weighted by 1 + ln count and the inverse of how many texts have them, as unit rows."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    counted = HashingVectorizer(n_features=WORD_COLUMNS, token_pattern=WORD, norm=None, alternate_sign=False)
    table = counted.transform(text[:TEXT_CHARACTERS] for text in texts)
    return TfidfTransformer(sublinear_tf=True).fit_transform(table)


def _form(texts: list[str]) -> FloatArray:
    """What a text looks like: its length, its lines, and the shares of capitals, small letters, digits and spaces."""
    cut = [text[:TEXT_CHARACTERS] for text in texts]
    marks = np.frombuffer("".join(cut).encode("latin-1", "replace"), np.uint8)
    size = np.array([len(text) for text in cut], np.int64)
    ends = np.cumsum(size)
    columns = [np.log1p([len(text) for text in texts]), np.log1p([text.count("\n") for text in texts])]
    for low, high in (("A", "Z"), ("a", "z"), ("0", "9"), ("\t", " ")):
        upto = np.concatenate([[0], np.cumsum((marks >= ord(low)) & (marks <= ord(high)))])
        columns.append((upto[ends] - upto[ends - size]) / np.maximum(size, 1))
    return np.stack(columns, axis=1)
