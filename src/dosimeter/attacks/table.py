"""Every attack in one table: its name, what it needs, its options, its function, and what it does in one sentence.

The named attacks of `leave_one_out`, `select_worst` and the audits are the rows that need nothing but signals and
shadow models. A new attack is a function and a row here; nothing else lists the attacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.attacks import base_model, likelihood, relative, text
from dosimeter.attacks.calibration import calibrated
from dosimeter.attacks.classifier import learned
from dosimeter.attacks.gradient import log_odds_from_gradients
from dosimeter.attacks.regression import quantile_regression
from dosimeter.attacks.signals import Array, Need, counts, read_shadows, require_models
from dosimeter.attacks.stacked import stacked_scores
from dosimeter.attacks.threshold import WATSON_NEED, loss, watson, watson_rotated
from dosimeter.attacks.white_box import LAST_LAYER, WhiteBox, last_layer_gradient

SIGNAL = "signal"  # one number of the target model for each record
SHADOWS = "shadow models"  # their signals, and which of them was trained on which record
FEATURES = "features"  # of the records
KNOWN = "known non-members"  # their signals and features
MEMBERSHIP = "known membership"  # of other records, to learn from
TOKENS = "token log-probabilities"
REFERENCE = "reference model"
TEXTS = "texts"
RANKS = "token ranks"  # how many tokens the model holds likelier
DIVERGENCES = "token divergences"  # between base model and model, over the vocabulary at each token
MOMENTS = "token moments"  # mean and deviation of the log-probability at each position
GRADIENTS = "gradients"
MODEL = "model"  # the target itself, the records and their labels
FEWEST_OF_PAIRS = 6  # models; with fewer, too few would be left to learn from
FEWEST_TO_TELL = 32  # records; with fewer, models are counterparts by chance

Options = Mapping[str, Any]


class AttackForm(NamedTuple):
    """An attack with its options decided for a set of shadow models.

    `label` names it in messages; `fixed` when a score above 0 means "member", so that no threshold must be fitted.
    """

    label: str
    need: Need
    options: dict[str, Any]
    fixed: bool = False


Decide = Callable[[Options, BoolArray, bool], AttackForm]
Rotate = Callable[[Array, BoolArray, Options], FloatArray]


@dataclass(frozen=True)
class AttackRow:
    """One attack.

    Attributes:
        name: What callers write, e.g. "lira-offline".
        sentence: What the attack does.
        function: The attack itself.
        needs: What it must be given.
        options: The names of its further arguments.
        preset: Options that the name already fixes.
        minimum: The fewest shadow models with and without each record, for each form of the attack.
        decide: Reads the options for a mask of shadow models; by default there is one form and nothing to decide.
        rotate: Scores every model with all others as its shadow models, faster than one call for each model.
    """

    name: str
    sentence: str
    function: Callable[..., FloatArray] = field(repr=False)
    needs: tuple[str, ...]
    options: tuple[str, ...] = ()
    preset: Options = field(default_factory=dict)
    minimum: Mapping[str, Need] = field(default_factory=dict, repr=False)
    decide: Decide | None = field(default=None, repr=False)
    rotate: Rotate | None = field(default=None, repr=False)

    @property
    def takes_shadows(self) -> bool:
        """Whether the signals of shadow models are all that it needs besides the target's."""
        return set(self.needs) <= {SIGNAL, SHADOWS}

    def scores(self, target: Any, shadows: Any, included: Any, **options: Any) -> FloatArray:
        """Scores of the target's shape, high for a likely member; only for attacks with `takes_shadows`."""
        return self._call(target, shadows, included, {**self.preset, **options})

    def scores_of(self, form: AttackForm, target: Any, shadows: Any, included: Any) -> FloatArray:
        """The same for options that are decided already."""
        return self._call(target, shadows, included, form.options)

    def _call(self, target: Any, shadows: Any, included: Any, options: Options) -> FloatArray:
        given = (target, shadows, included) if SHADOWS in self.needs else (target,)
        return self.function(*given, **options)

    def form(self, options: Options, included: BoolArray, *, left_out: bool) -> AttackForm:
        """Check the names of options, and decide what depends on the shadow models.

        Raises:
            InputError: For an option that this attack does not have, naming those it has.
        """
        for name in options:
            if name not in self.options:
                takes = ", ".join(self.options) or "none"
                raise InputError(f"{name} is not an option of {self.name}; its options are: {takes}.")
        chosen = {**self.preset, **options}
        if self.decide is not None:
            return self.decide(chosen, included, left_out)
        return AttackForm(self.name, self.minimum.get(self.name, Need(0, 0)), chosen)

    def rotated(self, form: AttackForm, signals: Array, included: BoolArray) -> FloatArray:
        """Scores (K, n) of K models, each with the others as its shadow models (`others_of`)."""
        require_models(form.label, form.need, *counts(included), left_out=True)
        others = others_of(included)
        if self.rotate is not None and (others.sum(axis=1) == len(signals) - 1).all():
            return self.rotate(signals, included, form.options)
        rows = zip(signals, others, strict=True)
        return np.stack([self.scores_of(form, row, signals[rest], included[rest]) for row, rest in rows])


def others_of(included: BoolArray) -> BoolArray:
    """Which models (K, K) help to attack each model: all but itself and its counterpart.

    The counterpart of a model was trained on just the records that the model was not trained on. Where models come in
    such pairs, every record is in as many models as any other: with one model taken away, the numbers that are left
    would tell which records it was trained on, so its counterpart goes with it.
    """
    others = ~np.eye(len(included), dtype=bool)
    if included.shape[1] < FEWEST_TO_TELL or len(included) < FEWEST_OF_PAIRS:
        return others
    place = {row.tobytes(): model for model, row in enumerate(np.packbits(included, axis=1))}
    found = [place.get(row.tobytes()) for row in np.packbits(~included, axis=1)]
    if sum(counterpart is None for counterpart in found) <= 1:  # an odd number of models leaves one without
        for model, counterpart in enumerate(found):
            if counterpart is not None:
                others[model, counterpart] = False
    return others


def _decide_lira(options: Options, included: BoolArray, left_out: bool) -> AttackForm:
    rule = likelihood.read_rule(options.get("mode", "online"), options.get("variance", "auto"))
    rule = likelihood.decided(rule, included, left_out=left_out)
    return AttackForm(rule.name, rule.need, rule._asdict(), rule.mode == "online")


def _rotate_lira(signals: Array, included: BoolArray, options: Options) -> FloatArray:
    return likelihood.lira_rotated(signals, included, likelihood.LiraRule(**options))


def _decide_rmia(options: Options, included: BoolArray, left_out: bool) -> AttackForm:
    mode = check.choice("mode", options.get("mode", "offline"), relative.MODES)
    return AttackForm(f"rmia mode='{mode}'", relative.NEEDS[mode], dict(options))


def _rotate_rmia(signals: Array, included: BoolArray, options: Options) -> FloatArray:
    rule = relative.read_rule(signals.shape[1], **options)
    relative.check_scale("outputs", signals, rule.scale)
    return relative.rmia_rotated(signals, included, rule)


def _rotate_informia(signals: Array, included: BoolArray, options: Options) -> FloatArray:
    rule = relative.read_rule(signals.shape[1], **options)
    relative.check_scale("outputs", signals, rule.scale)
    return relative.informia_rotated(signals, included, rule)


_LIRA = AttackRow(
    "lira",
    "Compares how likely the signal is among shadow models trained with the record and among those trained without it.",
    likelihood.lira,
    (SIGNAL, SHADOWS),
    ("mode", "variance"),
    minimum={rule.name: rule.need for rule in likelihood.FORMS},
    decide=_decide_lira,
    rotate=_rotate_lira,
)
_RMIA = AttackRow(
    "rmia",
    "Counts how many other records the record beats in how far the target's confidence exceeds that of shadow models.",
    relative.rmia,
    (SIGNAL, SHADOWS),
    ("population", "mode", "gamma", "offline_a", "scale"),
    minimum={f"rmia mode='{mode}'": need for mode, need in relative.NEEDS.items()},
    decide=_decide_rmia,
    rotate=_rotate_rmia,
)
_INFORMIA = AttackRow(
    "informia",
    "Measures how much further than for the population the target's confidence exceeds that of shadow models.",
    relative.informia,
    (SIGNAL, SHADOWS),
    ("population", "mode", "offline_a", "scale"),
    decide=_decide_rmia,
    rotate=_rotate_informia,
)
_CALIBRATED = AttackRow(
    "calibrated",
    "Weighs the signal with how far it exceeds the median that trees predict from features and class.",
    calibrated,
    (SIGNAL, FEATURES),
    ("labels", "by"),
)
_ROWS = (
    AttackRow(
        "loss",
        "Takes the signal itself as the score: one threshold for all records, or one for each class.",
        loss,
        (SIGNAL,),
        ("labels",),
        minimum={"loss": Need(0, 0)},
        rotate=lambda signals, included, options: loss(signals, **options),
    ),
    _CALIBRATED,
    replace(
        _CALIBRATED,
        name="calibrated-neighbours",
        sentence="Weighs the signal with how far it exceeds that of the nearest records of the class.",
        options=("labels",),
        preset={"by": "neighbours"},
    ),
    replace(
        _CALIBRATED,
        name="calibrated-class",
        sentence="Weighs the signal with how far it exceeds the median of the class.",
        options=("labels",),
        preset={"by": "class"},
    ),
    AttackRow(
        "watson",
        "Subtracts from the signal its mean over the shadow models trained without the record.",
        watson,
        (SIGNAL, SHADOWS),
        minimum={"watson": WATSON_NEED},
        rotate=lambda signals, included, options: watson_rotated(signals, included),
    ),
    _LIRA,
    replace(
        _LIRA,
        name="lira-offline",
        sentence="LiRA with the shadow models trained without the record alone.",
        options=("variance",),
        preset={"mode": "offline"},
        minimum={},
    ),
    _RMIA,
    replace(
        _RMIA,
        name="rmia-online",
        sentence="RMIA with shadow models trained with the record and without it.",
        options=("population", "gamma", "offline_a", "scale"),
        preset={"mode": "online"},
        minimum={},
    ),
    _INFORMIA,
    replace(
        _INFORMIA,
        name="informia-online",
        sentence="InfoRMIA with shadow models trained with the record and without it.",
        options=("population", "offline_a", "scale"),
        preset={"mode": "online"},
    ),
    AttackRow(
        "quantile_regression",
        "Measures how far the signal exceeds what the record's features predict for a non-member.",
        quantile_regression,
        (SIGNAL, FEATURES, KNOWN),
        ("level", "seed"),
    ),
    AttackRow(
        "learned",
        "Fits a classifier on features and outputs of records whose membership is known.",
        learned,
        (FEATURES, MEMBERSHIP),
        ("seed", "folds"),
    ),
    AttackRow(
        "stacked",
        "Fits boosted trees on what models say about records, on top of a classifier that sees the records alone.",
        stacked_scores,
        (FEATURES, MEMBERSHIP),
        ("seed",),
    ),
    AttackRow(
        "gradients",
        "Compares, step by step, how likely a noisy gradient is with and without the record.",
        log_odds_from_gradients,
        (GRADIENTS,),
        ("deviations",),
    ),
    AttackRow(
        LAST_LAYER,
        "Takes minus the logarithm of the norm of the record's gradient at the last dense layer.",
        last_layer_gradient,
        (MODEL,),
    ),
    AttackRow(
        "mean_log_probability", "Takes minus the model's loss on the text.", text.mean_log_probability, (TOKENS,)
    ),
    AttackRow(
        "reference_ratio",
        "Subtracts the mean log-probability of the text under a reference model.",
        text.reference_ratio,
        (TOKENS, REFERENCE),
    ),
    AttackRow(
        "zlib_ratio",
        "Divides the log-probability of the text by the size of its zlib compression.",
        text.zlib_ratio,
        (TOKENS, TEXTS),
    ),
    AttackRow(
        "min_k",
        "Averages the log-probabilities of the tokens that the model expected least.",
        text.min_k,
        (TOKENS,),
        ("k",),
    ),
    AttackRow(
        "min_k_plus_plus",
        "Min-K% of log-probabilities that are standardised at each position.",
        text.min_k_plus_plus,
        (TOKENS, MOMENTS),
        ("k",),
    ),
    AttackRow(
        "calibrated_min_k_plus_plus",
        "Subtracts from Min-K%++ of the model that of the base model.",
        base_model.calibrated_min_k_plus_plus,
        (TOKENS, MOMENTS, REFERENCE),
        ("k",),
    ),
    AttackRow(
        "window_signs",
        "Counts windows of tokens that became likelier than under the base model (WBC).",
        base_model.window_signs,
        (TOKENS, REFERENCE),
    ),
    AttackRow(
        "error_zone",
        "Compares rises with falls of the tokens that are not the model's first choice (EZ-MIA, repaired).",
        base_model.error_zone,
        (TOKENS, REFERENCE, RANKS),
    ),
    AttackRow(
        "token_informia",
        "Averages the rise of each token and how far the whole vocabulary moved there.",
        base_model.token_informia,
        (TOKENS, REFERENCE, DIVERGENCES),
    ),
)

ATTACKS: Mapping[str, AttackRow] = MappingProxyType({row.name: row for row in _ROWS})
SHADOW_ATTACKS: Mapping[str, AttackRow] = MappingProxyType({row.name: row for row in _ROWS if row.takes_shadows})
CALIBRATED: Mapping[str, AttackRow] = MappingProxyType({row.name: row for row in _ROWS if row.function is calibrated})
MINIMUM: Mapping[str, Need] = MappingProxyType({form: need for row in _ROWS for form, need in row.minimum.items()})


# --- every model as the target once -----------------------------------------------------------------------
def leave_one_out(attack: str | Callable[..., Any], outputs: Any, included: Any, **options: Any) -> FloatArray:
    """Attack each of K models with the other K − 1 as its shadow models.

    Where models come in pairs that share out the records, both models of a pair are left out: the numbers of models
    with and without a record would otherwise tell what the target was trained on.

    Named attacks remove the target from running sums, so that all K together cost about as much as one call for each
    row of targets; a function is called K times. `variance="auto"` is decided once, for K − 1 shadow models.

    Args:
        attack: "loss", "watson", "lira", "lira-offline", "rmia" or "rmia-online", or any function (target, shadows,
            included, **options) that returns a score for each of the n records of a target (n,).
        outputs: Signals (K, n) of the models, high for a likely member.
        included: Booleans (K, n): which model was trained on which record.
        **options: The same as when the attack is called itself, e.g. `variance="global"` for "lira".

    Returns:
        Scores (K, n), high for a likely member.

    Raises:
        InputError: If the attack or an option is unknown, or a record has too few shadow models for the attack.

    >>> import numpy as np
    >>> from dosimeter.attacks import leave_one_out
    >>> outputs = np.array([[3.0, 0.1], [0.2, 2.0], [2.5, 0.3], [0.1, 1.8]])
    >>> leave_one_out("watson", outputs, outputs > 1).round(2)
    array([[ 2.85, -0.2 ],
           [ 0.1 ,  1.8 ],
           [ 2.35,  0.2 ],
           [-0.1 ,  1.6 ]])
    """
    signals, mask = read_shadows(outputs, included)
    if signals.shape[0] < 2:
        raise InputError("outputs holds 1 model; leaving one out needs at least 2: train more models.")
    if not isinstance(attack, str):
        return _by_calls(attack, signals, mask, options)
    row = SHADOW_ATTACKS[check.choice("attack", attack, tuple(SHADOW_ATTACKS))]
    return row.rotated(row.form(options, mask, left_out=True), signals, mask)


def _by_calls(attack: Callable[..., Any], signals: Array, mask: BoolArray, options: dict[str, Any]) -> FloatArray:
    if not callable(attack):
        raise InputError(f"attack must be one of {', '.join(SHADOW_ATTACKS)} or a function, got {check.show(attack)}.")
    scores = np.empty(signals.shape)
    for model, others in enumerate(others_of(mask)):
        row = check.finite_array(
            "the attack's scores", attack(signals[model], signals[others], mask[others], **options)
        )
        if row.size != signals.shape[1]:
            raise InputError(
                f"the attack returns {row.size} scores for {signals.shape[1]} records; return one for each record."
            )
        scores[model] = row
    return scores


def read_white_box(attack: Any) -> tuple[Any, WhiteBox | None]:
    """The attack on signals, and the white-box attack that makes these, if `attack` is one."""
    if isinstance(attack, str) and attack == LAST_LAYER:
        attack = WhiteBox(last_layer_gradient, name=LAST_LAYER)
    return (attack.attack, attack) if isinstance(attack, WhiteBox) else (attack, None)
