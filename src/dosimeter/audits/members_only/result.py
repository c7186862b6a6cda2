"""What an audit with members only records: its details for the page, and its metadata."""

from __future__ import annotations

from dataclasses import dataclass

from dosimeter.audits.parts import Count, Part, Positive, Rate
from dosimeter.audits.result import Details, TrainedMetadata

__all__ = [
    "DETAILS",
    "METADATA",
    "BaselineResult",
    "BaselineStrength",
    "BaselineWithHelper",
    "BaselineWithRecords",
    "DifferenceRange",
    "GeneratorCheck",
    "JudgeResult",
    "MembersOnlyDetails",
    "MembersOnlyMetadata",
    "NearestMembers",
    "PropensityBin",
    "PropensityCheck",
    "RealNonmembersResult",
    "RealNonmembersTarget",
    "RecallCurve",
    "RecordCounts",
    "ReferenceTest",
    "ReferenceValues",
    "TargetResult",
    "ThesisResult",
    "ThesisTarget",
]


@dataclass(frozen=True)
class RecallCurve(Part):
    """Precision and bound of "member" guesses by recall, thinned for a screen; `best` is where the bound is largest."""

    recall: tuple[Rate, ...]
    precision: tuple[Rate, ...]
    bound: tuple[Positive, ...]
    guesses: tuple[Count, ...]
    best: Count


@dataclass(frozen=True)
class DifferenceRange(Part):
    """{c+ε}_lb − c_lb over several draws of the coins: a central interval, the median and the number of draws."""

    low: float
    median: float
    high: float
    number: Count


@dataclass(frozen=True)
class ReferenceTest(Part):
    """Whether a target stands out from the reference models: two statistics, and the limit of each.

    `first_part` is the mean TPR over the lowest false-positive rates, where a leak of few records shows.
    """

    stands_out: bool
    auc: Rate
    auc_limit: float
    first_part: Rate
    first_part_limit: float


@dataclass(frozen=True)
class TargetResult(Part):
    """What was measured for one model.

    `epsilon` is ε̃, and `epsilon_raw` what it would be without the test against the reference models. `one_run` is the
    one-run bound on c + ε. `verdict` is None where there are no reference models. `by_record` is the bound that a
    baseline for each record gives, and `by_order` the one that needs only the order of the baseline's log-odds.
    """

    name: str
    epsilon: Positive
    epsilon_raw: Positive
    c_lb: Positive
    c_plus_epsilon_lb: Positive
    guesses: Count
    recall: Rate
    stands_out: bool
    auc: Rate
    first_part: Rate
    verdict: ReferenceTest | None
    one_run: Positive
    throws: DifferenceRange
    curve: RecallCurve
    by_record: Positive | None = None
    by_order: Positive | None = None


@dataclass(frozen=True)
class BaselineResult(Part):
    """The strongest baseline: the one that every target is compared with."""

    name: str
    auc: Rate
    c_lb: Positive
    curve: RecallCurve


@dataclass(frozen=True)
class ReferenceValues(Part):
    """How well the attack does with each reference model in the target's place.

    The smaller ones learnt from half as many records; the target has `more` such halves beyond the others.
    """

    names: tuple[str, ...]
    auc: tuple[Rate, ...]
    first_part: tuple[Rate, ...]
    smaller_auc: tuple[Rate, ...] = ()
    smaller_first_part: tuple[Rate, ...] = ()
    more: Positive = 0.0


@dataclass(frozen=True)
class BaselineWithRecords(Part):
    """A baseline trained on a share of the records."""

    share: Rate
    records: Count
    c_lb: Positive
    auc: Rate


@dataclass(frozen=True)
class BaselineWithHelper(Part):
    """A baseline that sees the answers of one helper, or of none."""

    helper: str
    c_lb: Positive
    auc: Rate


@dataclass(frozen=True)
class BaselineStrength(Part):
    """Baselines that see less, all at one number of guesses.

    `rising` says that the baseline still gets better from half of the training records to all of them;
    `rising_p_value` is None where there are too few records to tell.
    """

    size: tuple[BaselineWithRecords, ...]
    helper: tuple[BaselineWithHelper, ...]
    guesses: Count
    rising: bool
    rising_p_value: Rate | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PropensityBin(Part):
    """Pairs of about one predicted chance that the likelier record is the member, and how often it was."""

    pairs: Count
    predicted: Rate
    share: Rate
    low: Rate
    high: Rate


@dataclass(frozen=True)
class PropensityCheck(Part):
    """Whether the baseline's chances agree with who the members are; `controls` are bounds where nothing can leak."""

    bins: tuple[PropensityBin, ...]
    calibrated: bool
    controls: tuple[Positive, ...]


@dataclass(frozen=True)
class RecordCounts(Part):
    """How the members were divided, and where the generated records came from."""

    generator: str
    reason: str
    filtered: Count
    sampled: Count
    copies_of_members: Count
    copies_share: Rate
    copies_left_out: Count
    repeated_share: Rate
    members: Count
    generator_members: Count
    train_members: Count
    audit_pairs: Count
    equal_across_parts: Count
    reference_members: Count = 0


@dataclass(frozen=True)
class NearestMembers(Part):
    """The best correlation of an image with a member: medians, and the share above 0.95.

    `real` is that of members with other members. `closeness` is 0 where generated images are as far from members as
    members are from each other, and 1 for copies.
    """

    generated: Rate
    real: Rate
    generated_close: Rate
    real_close: Rate
    closeness: Rate


@dataclass(frozen=True)
class JudgeResult(Part):
    """A classifier that sees the records alone, and its AUC on the audit pairs."""

    name: str
    auc: Rate


@dataclass(frozen=True)
class GeneratorCheck(Part):
    """Whether generated records pass for members.

    `counted` names the judge that told the training records best, and `auc` is its AUC on the audit pairs. `decides`
    says that this is so high that the generator decides what is measured. `missing` says which judge there was not.
    """

    judges: tuple[JudgeResult, ...]
    counted: str
    auc: Rate
    decides: bool
    nearest: NearestMembers | None
    missing: str | None = None


@dataclass(frozen=True)
class RealNonmembersTarget(Part):
    """The bounds on the ε of one model, from real non-members."""

    name: str
    epsilon: Positive
    one_run: Positive
    auc: Rate


@dataclass(frozen=True)
class RealNonmembersResult(Part):
    """The same attack on real non-members: the bounds of the first target, and those of all of them."""

    epsilon: Positive
    one_run: Positive
    auc: Rate
    pairs: Count
    targets: tuple[RealNonmembersTarget, ...]


@dataclass(frozen=True)
class ThesisTarget(Part):
    """One model as the thesis measures it: the best of all thresholds, and O(1) on its losses."""

    name: str
    epsilon: Positive
    c_plus_epsilon_lb: Positive
    recall: Rate
    one_run: Positive
    curve: RecallCurve


@dataclass(frozen=True)
class ThesisResult(Part):
    """The thesis's protocol: what its helper is, its baseline, and every target; O(1) on real or generated records."""

    helper: str
    c_lb: Positive
    curve: RecallCurve
    nonmembers: str
    targets: tuple[ThesisTarget, ...]


@dataclass(frozen=True)
class MembersOnlyDetails(Details):
    """What the page of a members-only audit draws.

    `null` holds the values of the reference models, `game` how the records were divided, `real` what real non-members
    add, `propensities` the check of a baseline for each record, `thesis` what its protocol gives, `generator` how well
    generated records pass for members; each is None where there is none.
    """

    targets: tuple[TargetResult, ...]
    baseline: BaselineResult
    null: ReferenceValues | None
    strength: BaselineStrength
    game: RecordCounts
    real: RealNonmembersResult | None = None
    propensities: PropensityCheck | None = None
    thesis: ThesisResult | None = None
    generator: GeneratorCheck | None = None


@dataclass(frozen=True, kw_only=True)
class MembersOnlyMetadata(TrainedMetadata):
    """The arguments of a members-only audit, and the seed of its coins."""

    kind: str | None = "members-only"
    data_kind: str | None = None
    coins_seed: int | None = None
    helper: str | None = None
    references: Count | None = None
    reference: str | None = None
    splits: tuple[Rate, ...] = ()
    generator: str | None = None
    protocol: str | None = None


DETAILS, METADATA = MembersOnlyDetails, MembersOnlyMetadata
