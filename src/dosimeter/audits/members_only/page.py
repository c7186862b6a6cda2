"""The page of a members-only audit: what was measured, how sure it is, and how strong the baseline is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from dosimeter.audits.members_only.charts import (
    _curves,
    _details,
    baseline_size,
    bound_recall,
    difference_recall,
    precision_recall,
    propensity_chart,
    reference_models,
)
from dosimeter.audits.members_only.close_images import CLOSE
from dosimeter.audits.members_only.measure import LEVEL
from dosimeter.audits.members_only.pair_classifier import DECIDES, FIRST_PART
from dosimeter.audits.members_only.result import (
    BaselineStrength,
    GeneratorCheck,
    MembersOnlyDetails,
    NearestMembers,
    PropensityCheck,
    ReferenceValues,
)
from dosimeter.audits.page.facts import Step
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.report.canvas import Canvas, Spec
from dosimeter.report.markup import Pictures, bullets, epsilon, figure, paragraph, section, share, short, small, table

CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {
    "precision-recall": precision_recall,
    "bound-recall": bound_recall,
    "reference-models": reference_models,
    "baseline-size": baseline_size,
    "propensities": propensity_chart,
    "difference-recall": difference_recall,
}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """The measurement, its curves, the reference models, the baseline, and how the records were used."""
    details = _details(audit)
    return [
        thesis_section(details),
        _measured(details),
        by_record(details, pictures),
        _with_and_without(audit, details, pictures),
        _references(audit, details, pictures),
        _strength(details.strength, pictures),
        generator_section(details),
        _records(details),
    ]


def steps(audit: Audit) -> list[Step]:
    """What would turn the measurement into a bound, and what would make it more certain."""
    details = _details(audit)
    advice = []
    if details.real is None:
        advice.append(
            Step(
                "Find real non-members",
                "Records of the same source that were not used, even a few hundred, make a bound out of the "
                "measurement.",
                "dosimeter.audit_members_only(…, nonmembers=(X, y))",
            )
        )
    advice.append(
        Step(
            "Decide by coins next time",
            "Draw a fair coin for each record before the next training. Then the same attack proves a bound, without "
            "generated records.",
            "included = dosimeter.fair_coins(len(records))",
        )
    )
    if details.null is None:
        advice.append(
            Step(
                "Compare with reference models",
                "Without them, what the model knows of the distribution counts as leakage.",
                "dosimeter.audit_members_only(…, references=8)",
            )
        )
    if details.strength.rising:
        advice.append(
            Step(
                "Give the baseline more records",
                "It still gets better with more of them, so the measured difference is too large.",
            )
        )
    return advice


def _measured(details: MembersOnlyDetails) -> str:
    lines = [
        (
            short(target.name),
            epsilon(target.epsilon),
            epsilon(target.epsilon_raw),
            epsilon(target.c_plus_epsilon_lb),
            epsilon(target.c_lb),
            f"{target.throws.low:.3g} to {target.throws.high:.3g}",
            "yes" if target.stands_out else "no",
        )
        for target in details.targets
    ]
    than = "with models that never saw these members" if details.null is not None else "the baseline, beyond chance"
    body = paragraph(
        "ε̃ is a measurement. It is the bound of the attack that sees the model, {c+ε}_lb, minus the bound of a "
        "baseline that does not, c_lb. It would be a lower bound on ε only if no baseline could do better. It is 0 "
        f"unless the attack stands out: it does better with the model than {than}."
    )
    body += table(
        "Measured for each model, all with one baseline and the same coins",
        ("model", "ε̃", "difference", "{c+ε}_lb", "c_lb", "range over draws of the coins", "stands out"),
        lines,
        numeric=(1, 2, 3, 4, 5),
        marked=[i for i, target in enumerate(details.targets) if target.epsilon > 0],
    )
    real = details.real
    if real is not None:
        body += paragraph(
            f"With real non-members ({real.pairs} pairs) there is no gap c. For the first model, guesses of members "
            f"alone prove ε ≥ {epsilon(real.epsilon)}; guesses of members and of non-members prove ε ≥ "
            f"{epsilon(real.one_run)}. These bounds hold if chance alone decided which records were members and "
            "which were not."
        )
    return section("measured", "What was measured", body)


def _with_and_without(audit: Audit, details: MembersOnlyDetails, pictures: Pictures) -> str:
    best = [f"{name} {epsilon(curve.bound[curve.best])}" for name, curve in _curves(details)]
    level = percent((1 + audit.headline.confidence) / 2)
    body = figure(
        "precision-recall",
        "Precision and recall",
        "Share of right guesses among the records guessed to be members, the surest first. Marks: where the bound of "
        "each line is largest.",
        pictures,
    )
    body += figure(
        "bound-recall",
        "Bound and recall",
        f"Each point holds with {level} confidence for its own recall alone, so the largest (marked) is not a bound: "
        f"{'; '.join(best)}.",
        pictures,
    )
    body += every_recall(details, pictures)
    return section("curves", "With and without the model", body)


def _references(audit: Audit, details: MembersOnlyDetails, pictures: Pictures) -> str:
    null, test = details.null, details.targets[0].verdict
    if null is None or test is None:
        body = paragraph(
            "There were no reference models, so what a model knows of the distribution counts as leakage here.", "note"
        )
        return section("references", "Compared with models that never saw the members", body)
    out = [short(target.name) for target in details.targets if target.stands_out]
    lead = (
        f"{len(null.auc)} reference models, trained on members outside the audit, took the target's place in the same "
        f"attack. {_gain(null)}A model that resembles them and leaks nothing passes their limit in about "
        f"{share(min(1 - audit.headline.confidence, LEVEL))} of audits. "
        + (f"Standing out: {', '.join(out)}." if out else "No model stands out.")
    )
    caption = (
        f"Circles: reference models, AUC {min(null.auc):.4g} to {max(null.auc):.4g}. Dashed: their limit, "
        f"{test.auc_limit:.4g}. A model may also stand out among the surest guesses alone (mean TPR at FPR up to "
        f"{share(FIRST_PART)}, limit {test.first_part_limit:.3g})."
    )
    body = paragraph(lead) + figure("reference-models", "Attack with each model", caption, pictures, by="y")
    return section("references", "Compared with models that never saw the members", body)


def _gain(null: ReferenceValues) -> str:
    """What the smaller reference models are for; nothing where there are none."""
    if not null.smaller_auc:
        return ""
    return (
        f"{len(null.smaller_auc)} more learnt from half as many records (AUC {min(null.smaller_auc):.4g} to "
        f"{max(null.smaller_auc):.4g}): what is gained from half to whole is continued up to the target's number of "
        "records, because a model that learnt from more knows the distribution better. "
    )


def _strength(strength: BaselineStrength, pictures: Pictures) -> str:
    body = paragraph(_trend(strength), "note" if strength.rising else "")
    caption = f"c_lb at {strength.guesses} guesses for baselines trained on some of the records."
    body += figure("baseline-size", "Baseline by training size", caption, pictures)
    body += table(
        "Strength of baselines that see less",
        ("baseline", "c_lb", "AUC"),
        [(f"trained on {b.records} records", epsilon(b.c_lb), f"{b.auc:.3g}") for b in strength.size]
        + [(b.helper, epsilon(b.c_lb), f"{b.auc:.3g}") for b in strength.helper],
        numeric=(1, 2),
    )
    return section("strength", "How strong the baseline is", body)


def _trend(strength: BaselineStrength) -> str:
    """What the line of the baseline does, and whether the baseline still gets better by more than chance."""
    line, chance = _line(strength), strength.rising_p_value
    if chance is None:
        return line + "There are too few records to tell whether more of them would make the baseline better."
    step = f"From half of the records to all of them (p = {small(chance)}) "
    if strength.rising:
        return line + step + "the baseline still gets better: c_lb is too low and ε̃ too high."
    return line + step + "no gain beyond chance was found."


def _line(strength: BaselineStrength) -> str:
    """Where the drawn line goes, in the digits that are printed; "" where none is drawn."""
    sizes = strength.size
    if len(sizes) < 2:
        return ""
    printed = [epsilon(size.c_lb) for size in sizes]
    if len(set(printed)) == 1:
        return f"Over all training sizes c_lb stays at {printed[0]}. "
    ends = f"from {printed[0]} ({sizes[0].records} records) to {printed[-1]} ({sizes[-1].records})"
    steps = [after.c_lb - before.c_lb for before, after in pairwise(sizes)]
    moves = "rises" if min(steps) >= 0 else "falls" if max(steps) <= 0 else "moves up and down,"
    return f"Over all training sizes c_lb {moves} {ends}. "


def _records(details: MembersOnlyDetails) -> str:
    counts = details.game
    lines = [
        f"{counts.members} members: {counts.generator_members} for the generator, {counts.train_members} to train "
        f"the classifiers, {counts.audit_pairs} to audit"
        + (f", {counts.reference_members} for reference models alone" if counts.reference_members else "")
        + "; no member serves for two of these."
        + (" A reference model is trained on members that it is not asked about." if details.null is not None else ""),
        f"Non-members from {short(counts.generator)}: {counts.sampled} generated, {counts.filtered} dropped by the "
        f"filter; {share(counts.copies_share)} were exact copies of members, and {counts.copies_left_out} copies were "
        "left out.",
        "The generated records of the helper, the classifiers and the audit are different ones. That the model was "
        "trained on the members is taken on trust: outputs alone cannot prove it.",
    ]
    return section("records", "How the audit was run", bullets(lines))


def by_record(details: MembersOnlyDetails, pictures: Pictures) -> str:
    """The bounds of a baseline for each record, and the check of their condition."""
    check = details.propensities
    if check is None:
        return ""
    body = paragraph(
        "ε̃ subtracts one number for all records. Here every pair of a member and a generated record counts with its "
        "own chance, which the baselines give without the model. The result is a lower bound on ε if these chances "
        "are right; the last column needs only their order to be right."
    )
    body += table(
        "Bound on the ε of replacing one record, conditional on the chances",
        ("model", "if the chances are right", "if their order is right"),
        [
            (short(target.name), epsilon(target.by_record), epsilon(target.by_order))
            for target in details.targets
            if target.by_record is not None and target.by_order is not None
        ],
        numeric=(1, 2),
        marked=[i for i, target in enumerate(details.targets) if target.by_record],
    )
    body += paragraph(_checked(check), "note" if _doubtful(check) else "")
    body += figure(
        "propensities",
        "Chances and shares",
        "Pairs by the chance that the likelier record is the member: how often it was, with limits that hold for all "
        "points together. On the dashed line the chances are right.",
        pictures,
    )
    return section("by-record", "A baseline for each record", body)


def _doubtful(check: PropensityCheck) -> bool:
    return not check.calibrated or max(check.controls, default=1.0) > 0


def _checked(check: PropensityCheck) -> str:
    fit = (
        "The chances agree with who the members are, within the limits below."
        if check.calibrated
        else "The chances do not agree with who the members are, so the condition fails."
    )
    if not check.controls:
        return f"{fit} There were no reference models to try the same bound on."
    largest = max(check.controls)
    if largest == 0:
        return f"{fit} For all {len(check.controls)} reference models, which never saw these members, the bound is 0."
    above = sum(value > 0 for value in check.controls)
    return (
        f"{fit} For {above} of {len(check.controls)} reference models, which never saw these members, the bound is "
        f"above 0, up to {epsilon(largest)}. This was subtracted from every bound above."
    )


def every_recall(details: MembersOnlyDetails, pictures: Pictures) -> str:
    """The figure of both bounds and their difference, with what it may claim."""
    name = short(details.targets[0].name)
    return figure(
        "difference-recall",
        "Both bounds and their difference",
        f"For {name}: the bound without the model (c_lb), with it ({{c+ε}}_lb), and ε̃, their difference, at each "
        "recall. Every point holds for its own recall alone; the best of them is not a bound.",
        pictures,
    )


def thesis_section(details: MembersOnlyDetails) -> str:
    """Both protocols side by side; empty where only the honest one was asked for."""
    thesis = details.thesis
    if thesis is None:
        return ""
    body = paragraph(
        "The thesis takes the best of all thresholds on the audit itself, and does not compare with reference models. "
        "Its ε̃ and O(1) reproduce the paper and prove nothing: with no leak at all such bounds are above 0 in 21 % to "
        "30 % of audits instead of 2.5 %. The honest ε̃ beside it fixes the number of guesses on other records and is 0 "
        "unless the model stands out. It is a measurement."
    )
    honest = {target.name: target for target in details.targets}
    body += table(
        f"Thesis: c_lb = {epsilon(thesis.c_lb)} with a helper that is {thesis.helper}",
        (
            "model",
            "ε̃ (thesis)",
            "{c+ε}_lb (thesis)",
            "at recall",
            f"O(1), {thesis.nonmembers} non-members",
            "ε̃ (honest)",
        ),
        [
            (
                short(row.name),
                epsilon(row.epsilon),
                epsilon(row.c_plus_epsilon_lb),
                share(row.recall),
                epsilon(row.one_run),
                epsilon(honest[row.name].epsilon),
            )
            for row in thesis.targets
        ],
        numeric=range(1, 6),
    )
    return section("thesis", "As the thesis has it", body)


def generator_section(details: MembersOnlyDetails) -> str:
    """What judges that see the records alone tell, and how close generated images come to members."""
    check = details.generator
    if check is None:
        return ""
    body = paragraph(_verdict(check), "note" if check.decides else "")
    if check.missing is not None:
        body += paragraph(f"{check.missing[0].upper()}{check.missing[1:]}.", "note")
    body += table(
        "Judges that see the records alone",
        ("judge", "AUC on the audit pairs", "counts"),
        [(judge.name, f"{judge.auc:.3g}", "yes" if judge.name == check.counted else "no") for judge in check.judges],
        numeric=(1,),
    )
    if check.nearest is not None:
        body += _nearest(check.nearest)
    return section("generator", "How well generated records pass for members", body)


def _verdict(check: GeneratorCheck) -> str:
    told = f"Without the model, a classifier tells members from generated records with an AUC of {check.auc:.3g}"
    if check.decides:
        return (
            f"{told}, above {DECIDES:g}: the generator decides nearly every guess. Where ε̃ is 0 it has no power, "
            "and says nothing about the model."
        )
    return (
        f"{told}; 0.5 is chance. The classifier that did best on the training records counts, and the baseline sees "
        "its score."
    )


def _nearest(near: NearestMembers) -> str:
    body = table(
        "Best correlation with a member",
        ("images", "median", f"share above {CLOSE:g}"),
        [
            ("generated", f"{near.generated:.3g}", share(near.generated_close)),
            ("members, with other members", f"{near.real:.3g}", share(near.real_close)),
        ],
        numeric=(1, 2),
    )
    return body + paragraph(
        f"Generated images lie {share(near.closeness)} of the way from where members lie to copies of them. A model "
        "recognises its members in images that lie close to them, and then less of a leak shows."
    )
