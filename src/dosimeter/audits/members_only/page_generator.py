"""The part of the page that says how well generated records pass for members."""

from __future__ import annotations

from dosimeter.audits.members_only.generator_check import CLOSE, DECIDES
from dosimeter.audits.members_only.result import GeneratorCheck, MembersOnlyDetails, NearestMembers
from dosimeter.report.markup import paragraph, section, share, table


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
    told = f"Without the model, a judge tells members from generated records with an AUC of {check.auc:.3g}"
    if check.decides:
        return (
            f"{told}, above {DECIDES:g}: the generator decides nearly every guess. Where ε̃ is 0 it has no power, "
            "and says nothing about the model."
        )
    return (
        f"{told}; 0.5 is chance. The judge that told the training records best counts, and the baseline sees its score."
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
