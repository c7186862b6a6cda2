"""What an attack proves from below and an accountant from above, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError, require
from dosimeter.accounting.accountants import account
from dosimeter.accounting.mechanism import Guarantee, Mechanism, dp_sgd
from dosimeter.estimate import Estimate, change, number, percent, plain


def comparable(lower: Estimate, upper: Guarantee) -> bool:
    """Whether two ends may stand side by side: both speak of a record and the same neighbours, as far as is known."""
    return _unit(lower) == "record" and lower.neighbours in (None, upper.neighbours)


def _unit(lower: Estimate) -> str:
    return str(lower.details.get("unit", "record"))


@dataclass(frozen=True)
class PrivacyRegion:
    """Hold the ε that is left open: at least what an attack has proven, at most what an accountant guarantees.

    Args:
        lower: What an attack proves.
        upper: What an accountant proves, for the same neighbours: an ε for replacing a record cannot be set beside one
            for adding or removing a record.

    Raises:
        InputError: If one of them is of another type, or they are known to speak of different neighbours or units.

    >>> from dosimeter import Scores, account, lower_bound
    >>> lower = lower_bound(Scores(range(100, 200), range(100)), delta=1e-5)
    >>> upper = account(noise_multiplier=1.0, steps=10, neighbours="replace", delta=1e-5)[0]
    >>> PrivacyRegion(lower, upper).contradiction
    False
    """

    lower: Estimate
    upper: Guarantee

    def __post_init__(self) -> None:
        if not isinstance(self.lower, Estimate):
            raise InputError(f"lower must be an Estimate, got {check.show(self.lower)}; pass what an attack proves.")
        if not isinstance(self.upper, Guarantee):
            raise InputError(
                f"upper must be a Guarantee, got {check.show(self.upper)}; pass what an accountant proves."
            )
        if (unit := _unit(self.lower)) != "record":
            raise InputError(
                f"lower is for one {unit} and upper for one record; these are different ε: leave out the "
                "groups, or set them apart."
            )
        if not comparable(self.lower, self.upper):
            raise InputError(
                f"lower is for {self.lower.neighbours} neighbours and upper for {self.upper.neighbours} neighbours; "
                "these are different ε: account for the neighbours of the attack."
            )

    @property
    def contradiction(self) -> bool:
        """Whether a proven lower bound stands above a proven upper bound at a δ that is not larger."""
        proven = self.lower.validity.is_bound and self.upper.is_bound
        # A lower bound at a larger δ holds at every smaller one.
        return proven and self.lower.low > self.upper.epsilon and self.lower.delta >= self.upper.delta

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before the two ends are read as one region."""
        found: list[str] = []
        if self.lower.delta != self.upper.delta:
            found.append(
                f"the attack speaks of δ = {self.lower.delta:g} and the accountant of δ = {self.upper.delta:g}; "
                "use one δ for both"
            )
        if not self.lower.validity.is_bound:
            found.append(
                f"the lower number is not a confidence bound for any mechanism (validity: {self.lower.validity})"
            )
        if not self.upper.is_bound:
            found.append(f"the upper number ({self.upper.method}) is not a proven bound")
        return tuple(found)

    @property
    def _whose(self) -> str:
        act = change(self.lower.neighbours or self.upper.neighbours)
        return f" for {act}" if act else ""

    def __str__(self) -> str:
        low, high = self.lower, self.upper
        sure = percent(low.confidence)
        if low.validity.is_bound:
            left = f"the attack proves ε ≥ {number(low.low)}{self._whose} with {sure} confidence"
        else:
            left = f"the attack gives ε = {number(low.epsilon)} ({low.validity}, not a bound for any mechanism)"
        if high.is_bound:
            right = f"the accountant proves ε ≤ {number(high.epsilon)}"
        else:
            right = f"the formula {high.method} gives ε ≈ {number(high.epsilon)}, which is not a bound"
        if self.contradiction:
            end = f"both cannot hold: the mechanism does not keep its guarantee, or the {sure} bound has missed"
        elif low.validity.is_bound and high.is_bound:
            end = "nothing is known in between"
        else:
            end = "they cannot be read as two ends of one region"
        return f"{left}; {right}; {end}."

    def to_dict(self) -> dict[str, Any]:
        """Both ends, the sentence and the warnings as plain JSON values."""
        return {
            "lower": self.lower.to_dict(),
            "upper": self.upper.to_dict(),
            "claim": str(self),
            "contradiction": self.contradiction,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class NoiseSweep:
    """Hold every bound from above and from below over a list of noise levels, the rows of the log-log picture.

    Attributes:
        rows: For each noise level and method: `noise_multiplier`, `method`, `side` ("upper" or "lower"), `epsilon` and
            `is_bound`.
        delta: The δ that they are for.
    """

    rows: tuple[dict[str, Any], ...]
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """δ and the rows as plain JSON values."""
        return {"delta": self.delta, "rows": [plain(row) for row in self.rows]}

    def plot(self) -> Any:
        """A log-log chart of ε against the noise multiplier, one line for each method."""
        altair = require("altair", extra="report", caller="NoiseSweep.plot")
        shown = [row for row in self.rows if row["epsilon"] is not None and row["epsilon"] > 0]
        axes = {
            "x": altair.X("noise_multiplier:Q", scale=altair.Scale(type="log"), title="noise multiplier"),
            "y": altair.Y("epsilon:Q", scale=altair.Scale(type="log"), title=f"ε at δ = {self.delta:g}"),
            "color": altair.Color("method:N", title="method"),
            "strokeDash": altair.StrokeDash("side:N", title="side"),
            "tooltip": ["noise_multiplier:Q", "method:N", "side:N", "epsilon:Q", "is_bound:N"],
        }
        return altair.Chart(altair.Data(values=shown)).mark_line(point=True).encode(**axes)


def region_of_privacy(
    noise_multipliers: Sequence[float],
    *,
    delta: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    methods: Sequence[str] | None = ("naive", "advanced", "rdp", "pld"),
    lower: Sequence[Estimate] | None = None,
) -> NoiseSweep:
    """Compute the region of privacy of "That which we call private" (2019) over noise levels.

    Args:
        noise_multipliers: The noise levels.
        delta: The δ of the guarantees.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        methods: The accountants that bound ε from above.
        lower: What attacks have shown: one estimate for each noise level.

    Returns:
        A row for each noise level, with every bound from above and from below.

    Raises:
        InputError: If an argument is out of range, or estimates and guarantees speak of different neighbours.

    >>> region_of_privacy([1.0, 2.0], delta=1e-5, steps=10, methods=["pld"]).rows[0]["noise_multiplier"]
    1.0
    """
    levels = check.finite_array("noise_multipliers", noise_multipliers).tolist()
    if lower is not None and len(lower) != len(levels):
        raise InputError(
            f"lower has {len(lower)} estimates for {len(levels)} noise levels; pass one for each noise level."
        )
    rows: list[dict[str, Any]] = []
    for index, noise in enumerate(levels):
        run: Mechanism = dp_sgd(noise, sample_rate, steps, sampling, neighbours)
        for item in account(run, delta=delta, methods=methods):
            rows.append(_row(noise, item.method, "upper", item.epsilon, item.is_bound))
        if lower is not None:
            shown = lower[index]
            if shown.neighbours is not None and shown.neighbours != str(run.neighbours):
                raise InputError(
                    f"lower[{index}] is for {shown.neighbours} neighbours, the upper bounds are for {run.neighbours} "
                    "neighbours; pass neighbours= to account for those of the attack."
                )
            rows.append(_row(noise, shown.method, "lower", shown.low, shown.validity.is_bound))
    return NoiseSweep(tuple(rows), delta)


def _row(noise: float, method: str, side: str, epsilon: float, is_bound: bool) -> dict[str, Any]:
    value = plain(epsilon)
    return {"noise_multiplier": noise, "method": method, "side": side, "epsilon": value, "is_bound": is_bound}
