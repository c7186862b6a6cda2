"""What is measured, against whom, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """What a row must reach; `aim` marks what is hoped for and not promised."""

    milliseconds: float | None = None
    ratio: float | None = None  # their time over ours
    value: float | None = None  # our value is at least this
    error: float | None = None  # largest distance of our value from `Row.truth`
    aim: bool = False

    @property
    def own(self) -> bool:
        """Whether there is something to check without a peer."""
        return any(limit is not None for limit in (self.milliseconds, self.value, self.error))

    def __str__(self) -> str:
        parts = []
        if self.milliseconds is not None:
            parts.append(f"≤ {self.milliseconds:g} ms")
        if self.ratio is not None:
            parts.append(f"ratio ≥ {self.ratio:,.0f}" if self.ratio >= 1 else f"ratio ≥ {self.ratio:.2g}")
        if self.value is not None:
            parts.append(f"value ≥ {self.value:g}")
        if self.error is not None:
            parts.append(f"error ≤ {self.error:g}")
        return ("aim: " if self.aim else "") + ", ".join(parts)


@dataclass(frozen=True)
class Row:
    """One line of the result: a task for dosimeter and, with other arguments where need be, for somebody else."""

    name: str
    work: str
    task: str
    arguments: dict
    target: Target = Target()
    peer: str | None = None
    peer_task: str | None = None
    peer_arguments: dict | None = None
    repeats: int = 7
    peer_repeats: int = 7
    quick: bool = True  # part of --quick
    quick_peer: bool = True
    truth: list[float] = field(default_factory=list)
    note: str = ""


# Posterior intervals to 16 digits: quadrature of the two-dimensional posterior in 22-digit arithmetic (mpmath).
_INTERVALS = {
    200: ({"fn": 35, "tp": 65, "fp": 25, "tn": 75}, [0.5217866485606459, 1.266648517079362]),
    2000: ({"fn": 350, "tp": 650, "fp": 250, "tn": 750}, [0.7589670798779647, 0.995266869081254]),
}


def _interval(total: int) -> Row:
    counts, truth = _INTERVALS[total]
    return Row(
        "interval",
        f"joint-posterior two-sided interval, N = {total}",
        "posterior_interval",
        {**counts, "delta": 0.05},
        Target(milliseconds=2, ratio=5000, error=1e-8),
        peer="privacy-estimates",
        repeats=31,
        peer_repeats=1,
        quick_peer=False,
        truth=truth,
    )


def _sweep(total: int, most: float) -> Row:
    return Row(
        "sweep",
        f"best joint-posterior lower bound over all thresholds, N = {total:,}",
        "posterior_sweep",
        {"total": total},
        Target(milliseconds=most),
        peer="privacy-estimates" if total <= 10_000 else None,
        repeats=7 if total <= 10_000 else 3,
        peer_repeats=1,
        quick=total <= 10_000,
        quick_peer=False,
        note="theirs extrapolated, on the low side: one central threshold, times the convex corners of the ROC curve",
    )


def _lower_bound(members: int) -> list[Row]:
    size, small = f"{members:,} + {members:,}", members <= 100_000
    return [
        Row(
            "lower-bound",
            f"lower_bound, {size} scores",
            "lower_bound",
            {"members": members},
            Target(ratio=1),
            peer="jax-privacy",
            repeats=31 if small else 9,
            peer_repeats=31 if small else 9,
            quick=small,
            note="theirs: Clopper–Pearson, Bonferroni over the hull (the default)",
        ),
        Row(
            "lower-bound",
            f"lower_bound, {size} scores, against sorting them",
            "lower_bound",
            {"members": members},
            Target(ratio=1 / 1.5, aim=True),
            peer="reference",
            peer_task="sorting",
            repeats=31 if small else 9,
            peer_repeats=31 if small else 9,
            quick=small,
            note="theirs: numpy.sort of both sides",
        ),
    ]


def _one_run(records: int) -> Row:
    return Row(
        "one-run",
        f"one_run, {records:,} canaries",
        "one_run",
        {"records": records},
        Target(ratio=1),
        peer="jax-privacy",
        repeats=5,
        peer_repeats=5 if records <= 10_000 else 1,
        quick=records <= 100_000,
        note="theirs: one-run, Bonferroni over thresholds (the default)",
    )


def _inversion(term: str, peer: str | None) -> Row:
    counts = {"records": 10**6, "correct": 690_000}
    return Row(
        "inversion",
        f"one-run p-value inversion, m = r = 1e6, δ-term: {term}",
        "one_run_inversion",
        {**counts, "term": term},
        Target(milliseconds=15),
        peer=peer,
        peer_arguments=counts,
        repeats=9,
        peer_repeats=1,
        quick_peer=False,
    )


def _betting(delta: float) -> Row:
    return Row(
        "betting",
        f"rank betting on 1e6 guesses, δ = {delta:g}",
        "one_run",
        {"records": 10**6, "method": "betting", "delta": delta},
        Target(milliseconds=1000),
        repeats=3,
        quick=False,
    )


def _calibration(records: int, most: float) -> list[Row]:
    arguments = {"records": records}
    return [
        Row(
            "calibration",
            f"walk's level by its exact recursion, m = {records:,}",
            "walk_level_exact",
            arguments,
            Target(milliseconds=most),
            repeats=3,
        ),
        Row(
            "calibration",
            f"band's violation by its exact recursion, one level, n = {records:,}",
            "band_violation_exact",
            arguments,
            Target(milliseconds=most),
            repeats=3,
        ),
        Row(
            "calibration",
            f"walk's level from the table, first call, m = {records:,}",
            "walk_level_from_table",
            arguments,
        ),
        Row(
            "calibration",
            f"band's level from the table, first call, n = {records:,}",
            "band_level_from_table",
            arguments,
        ),
    ]


def _epsilon_star(form: str) -> Row:
    return Row(
        "epsilon-star",
        f"Epsilon*, {form}, 1000 bootstrap resamples of 100k + 100k losses",
        "epsilon_star",
        {"members": 100_000, "resamples": 1000, "form": form},
        Target(milliseconds=20_000),
        repeats=1,
        quick=False,
    )


ROWS = [
    _interval(200),
    _interval(2000),
    _sweep(1024, 15),
    _sweep(10_000, 50),
    _sweep(10**6, 6000),
    *_lower_bound(10_000),
    *_lower_bound(10**6),
    Row(
        "lower-bound",
        "lower_bound, 10,000 + 10,000 scores",
        "lower_bound",
        {"members": 10_000},
        peer="privacyguard",
        repeats=3,
        peer_repeats=1,
        quick_peer=False,
        note="theirs: Clopper–Pearson maximised over thresholds without a correction, which does not hold at 95 %",
    ),
    Row(
        "tightness",
        "lower_bound, mean over 100 draws of 1,000 + 1,000 scores (truth 4.377)",
        "mean_lower_bound",
        {"members": 1000, "draws": 100},
        Target(value=1.75),
        peer="jax-privacy",
        repeats=1,
        peer_repeats=1,
    ),
    _one_run(10_000),
    _one_run(100_000),
    _one_run(10**6),
    _inversion("steinke", "jax-privacy"),
    _inversion("smaller", None),
    _betting(1e-5),
    _betting(0.0),
    Row(
        "panoramia",
        "PANORAMIA bounds over all 10,000 thresholds",
        "panoramia_curve",
        {"records": 10_000},
        Target(milliseconds=20),
        peer="reference",
        peer_task="panoramia_search",
        peer_arguments={"records": 10_000, "thresholds": 100},
        peer_repeats=1,
        note="theirs extrapolated: a search by halving at 100 thresholds, times 100; value: the best of those 100",
    ),
    Row(
        "epsilon-star",
        "Epsilon*, parametric, 1M + 1M losses, no bootstrap",
        "epsilon_star",
        {"members": 10**6, "resamples": 0},
        Target(ratio=1),
        peer="reference",
        peer_task="transforming",
        peer_arguments={"members": 10**6},
        repeats=5,
        peer_repeats=5,
        quick=False,
        note="theirs: five passes of the transform, block by block; a yardstick for the target of 5 passes, no count",
    ),
    _epsilon_star("parametric"),
    _epsilon_star("empirical"),
    *_calibration(1000, 500),
    *_calibration(10_000, 5000),
]

GROWTH = [10**4, 10**5, 10**6, 10**7]  # scores of each side; --quick leaves the last two out

FORBIDDEN = ["torch", "sklearn", "ray", "altair", "pandas"]  # what `import dosimeter` must not load
IMPORT_REPEATS = 7
IMPORT_RATIO = 1.3
