"""Tell real records from generated ones: a classifier of the content, and a second one on top that also sees outputs.

The content classifier suits the kind of data: gradient boosting for tables, hashed n-grams for texts. Images have two,
gradient boosting on principal components and a small convolutional network (without torch the former alone): whichever
of them, or of their sum, tells better out of fold counts. Scores of the training records are out of fold, so that the
second classifier, boosted trees on that score and on the outputs of models, sees scores as it will meet them later
(Kazmi 2024, stacking of baseline and attack). Baseline and attack differ only in whose outputs they see: the budget is
the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.engine.threads import one_thread
from dosimeter.evidence import Scores
from dosimeter.models import BlackBox, HuggingFace, Outputs

FOLDS = 3
COMPONENTS = 100
MOST_CLASSES = 12
HASHED = 1 << 17
WORST_TOKENS = 0.2


class Content(NamedTuple):
    """Records in the form a classifier of content takes: (n, d) floats, (n, h, w, c) images or texts; label codes."""

    kind: str
    records: Any
    labels: IntArray | None

    def __len__(self) -> int:
        return len(self.records)

    def take(self, rows: Any) -> Content:
        """The records with these row numbers."""
        index = np.arange(len(self.records))[rows]
        records = [self.records[i] for i in index] if self.kind == "text" else self.records[index]
        return Content(self.kind, records, None if self.labels is None else self.labels[index])


def joined(parts: Sequence[Content]) -> Content:
    """Contents of one kind, one after the other."""
    kind = parts[0].kind
    if kind == "text":
        records: Any = [text for part in parts for text in part.records]
    else:
        records = np.concatenate([part.records for part in parts])
    labels = None if parts[0].labels is None else np.concatenate([p.labels for p in parts if p.labels is not None])
    return Content(kind, records, labels)


# --- what a model says about records ----------------------------------------------------------------------


def answers(box: BlackBox, X: Any, y: Any) -> FloatArray:
    """What a model says of each record, the loss in the first column."""
    if isinstance(box, HuggingFace) and box.task == "causal":
        found = box.sequences(X)
        return token_columns(found.log_probabilities)
    if y is None:
        return box.losses(X, None).values[:, None]
    return class_columns(box.outputs(X), y)


def token_columns(log_probabilities: Sequence[FloatArray]) -> FloatArray:
    """Mean loss of a sequence, the mean of its worst tokens, its quartiles, and its length."""
    rows = np.empty((len(log_probabilities), 6))
    for row, values in zip(rows, log_probabilities, strict=True):  # sequences of their own length each
        ordered = np.sort(values)
        worst = ordered[: max(1, round(WORST_TOKENS * ordered.size))]
        row[:] = -values.mean(), -worst.mean(), *-np.quantile(ordered, [0.25, 0.5, 0.75]), np.log(values.size)
    return rows


def class_columns(outputs: Outputs, y: Any) -> FloatArray:
    """The loss, the entropy, the lead of the first class over the second, and a few log-probabilities."""
    loss = outputs.losses(y).values
    values = np.asarray(outputs.values, np.float64)
    if outputs.kind == "probabilities":
        both = np.stack([1.0 - values, values], axis=1) if values.ndim == 1 else values
        logs = np.log(np.maximum(both, 1e-12))
    else:
        logs = np.stack([np.zeros_like(values), values], axis=1) if values.ndim == 1 else values
        logs = logs - logs.max(axis=1, keepdims=True)
        logs = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
    top = np.partition(logs, logs.shape[1] - 2, axis=1)
    columns = [loss, -(np.exp(logs) * logs).sum(axis=1), top[:, -1] - top[:, -2]]
    if 2 < logs.shape[1] <= MOST_CLASSES:
        columns += list(np.maximum(logs, -40.0).T)
    return np.stack(columns, axis=1)


# --- the two classifiers ----------------------------------------------------------------------------------


TREES, NETWORK, BOTH = "trees on principal components", "convolutional network", "both together"
WORDS = "words and letters"


class Judge(NamedTuple):
    """One classifier of the content: its scores, out of fold for the training records; higher means real."""

    name: str
    train: FloatArray
    audit: FloatArray


class Scored(NamedTuple):
    """Scores of the training records, out of fold, and of the audit records; higher means real.

    They are those of the judge named `counted`; `judges` has all that were asked.
    """

    train: FloatArray
    audit: FloatArray
    counted: str = ""
    judges: tuple[Judge, ...] = ()


def content_scores(train: Content, member: BoolArray, audit: Content, *, seed: int, folds: int = FOLDS) -> Scored:
    """Scores of a classifier that sees the records (and labels) alone, fitted on all folds but one in turn.

    The audit records get the mean score of the classifiers of all folds. Of several judges the one that tells the
    training records best, out of fold, counts.
    """
    fold = _folds(member, folds, seed)
    judges = []
    for view in _views(train, audit):
        out, total = np.empty(member.size), np.zeros(len(audit))
        for k in range(folds):
            held = np.flatnonzero(fold == k)
            score = _fit(view, member, np.flatnonzero(fold != k), seed + k)
            out[held] = score(view.seen[held])
            total += score(view.asked)
        judges.append(Judge(view.name, out, total / folds))
    if len(judges) > 1:
        first, second = judges
        judges.append(Judge(BOTH, first.train + second.train, first.audit + second.audit))
    best = max(judges, key=lambda judge: Scores(judge.train[member], judge.train[~member]).auc)
    return Scored(best.train, best.audit, best.name, tuple(judges))


class JudgeView(NamedTuple):
    """The training and the audit records as one judge sees them."""

    name: str
    seen: Any
    asked: Any


def _views(train: Content, audit: Content) -> list[JudgeView]:
    """What each judge of a kind of data sees; what is learnt for it comes from the training records."""
    if train.kind == "text":
        return [JudgeView(WORDS, hashed(train), hashed(audit))]
    if train.kind == "image":
        networks = [JudgeView(NETWORK, train.records, audit.records)] if has_torch() else []
        return [JudgeView(TREES, *principal(train, audit)), *networks]
    return [JudgeView("trees", _labelled(train.records, train), _labelled(audit.records, audit))]


def principal(train: Content, audit: Content) -> tuple[FloatArray, FloatArray]:
    """Components, the length in units of their deviations, and what they leave, which a generator may lack."""
    from sklearn.decomposition import PCA

    seen, asked = (c.records.reshape(len(c), -1).astype(np.float64) for c in (train, audit))
    pca = PCA(min(COMPONENTS, *seen.shape), svd_solver="randomized", random_state=0)
    with np.errstate(invalid="ignore"):  # the share of variance explained, when all images are the same
        pca.fit(seen)
    deviations = np.sqrt(pca.explained_variance_)
    deviations[deviations <= 1e-7 * deviations[0]] = 1.0

    def columns(rows: FloatArray, content: Content) -> FloatArray:
        places = pca.transform(rows)
        left = ((rows - pca.inverse_transform(places)) ** 2).sum(axis=1)
        return _labelled(np.column_stack([places, ((places / deviations) ** 2).sum(axis=1), left]), content)

    return columns(seen, train), columns(asked, audit)


def _labelled(matrix: FloatArray, content: Content) -> FloatArray:
    if content.labels is None:
        return matrix
    return np.column_stack([matrix, content.labels])


def hashed(content: Content) -> Any:
    """Words and letters in a row and, where there are labels, the words of each class on their own."""
    import scipy.sparse
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=HASHED, ngram_range=(1, 3), norm="l2", alternate_sign=False)
    letters = HashingVectorizer(n_features=HASHED, analyzer="char_wb", ngram_range=(3, 4), norm="l2")
    parts = [words.transform(content.records), letters.transform(content.records)]
    if content.labels is not None:
        marked = [
            [f"{label} {word}" for word in ("", *text.lower().split())]
            for label, text in zip(content.labels, content.records, strict=True)
        ]
        parts.append(HashingVectorizer(n_features=HASHED, analyzer=list, norm="l2").transform(marked))
    return scipy.sparse.hstack(parts, format="csr")


class WordClassifier:
    """Logistic regression on the columns of a sparse table that the training rows fill.

    The coefficient of an empty column would start at 0 and stay there, so this is the classifier on all columns. Texts
    fill a small share of the hashed ones.
    """

    def fit(self, x: Any, y: Any) -> WordClassifier:
        """Fit on the rows of a CSR table."""
        from sklearn.linear_model import LogisticRegression

        self.columns = np.unique(x.indices)
        self.model: Any = LogisticRegression(C=10.0, max_iter=200).fit(x[:, self.columns], y)
        self.classes_: IntArray = self.model.classes_
        return self

    def decision_function(self, x: Any) -> FloatArray:
        """The log-odds of the classes."""
        return self.model.decision_function(x[:, self.columns])

    def predict_proba(self, x: Any) -> FloatArray:
        """The probability of each class."""
        return self.model.predict_proba(x[:, self.columns])


def _fit(view: JudgeView, member: BoolArray, rows: IntArray, seed: int) -> Callable[[Any], FloatArray]:
    """A function from records to scores, fitted on these rows."""
    if view.name == NETWORK:
        from dosimeter.attacks.image_classifier import image_judge

        return image_judge(view.seen[rows], member[rows], seed=seed)
    if view.name == WORDS:
        fitted: Any = WordClassifier()
    else:
        fitted = boosted(seed, leaves=31, rounds=120)
    quiet_fit(fitted, view.seen[rows], member[rows])
    return lambda records: margins(fitted, records)


def _folds(member: BoolArray, folds: int, seed: int) -> IntArray:
    """The fold of each record, both kinds spread evenly."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    fold = np.empty(member.size, np.int64)
    for kind in (True, False):
        rows = rng.permutation(np.flatnonzero(member == kind))
        fold[rows] = np.arange(rows.size) % folds
    return fold


def stacked_scores(train: FloatArray, member: BoolArray, audit: FloatArray, *, seed: int) -> FloatArray:
    """Scores of the audit records by boosted trees on the columns of the training records."""
    fitted = boosted(seed, leaves=8, rounds=100)
    quiet_fit(fitted, train, member)
    return margins(fitted, audit)


def stacked_out_of_fold(train: FloatArray, member: BoolArray, *, seed: int, folds: int = FOLDS) -> FloatArray:
    """The same classifier's scores of the training records, each fitted without the record's fold."""
    fold = _folds(member, folds, seed)
    found = np.empty(member.size)
    for k in range(folds):
        found[fold == k] = stacked_scores(train[fold != k], member[fold != k], train[fold == k], seed=seed)
    return found


def boosted(seed: int, *, leaves: int, rounds: int) -> Any:
    """Gradient boosting of the size that both stages use."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=rounds,
        learning_rate=0.06,
        max_leaf_nodes=leaves,
        min_samples_leaf=20,
        l2_regularization=1.0,
        max_bins=127,
        early_stopping=False,
        random_state=seed,
    )


def quiet_fit(model: Any, x: Any, y: Any) -> None:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)


def margins(model: Any, x: Any) -> FloatArray:
    """The decision function of a classifier of two classes."""
    with one_thread():
        return np.asarray(model.decision_function(x), np.float64)


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    return find_spec("torch") is not None
