"""`dosimeter plan`: before training, what an audit of a given size could show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, Seed, out, print_json, table

if TYPE_CHECKING:
    from dosimeter.pipelines.power import Power


def plan(
    members: Annotated[int, typer.Option("--members", help="Members with scores.")] = 1000,
    nonmembers: Annotated[
        int | None,
        typer.Option("--nonmembers", help="Non-members; as many as members if not given.", show_default=False),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(
            "--canaries", help="Records of a one-run audit; members + non-members if not given.", show_default=False
        ),
    ] = None,
    guesses: Annotated[
        int | None,
        typer.Option(
            "--guesses", help="Guesses of the one-run audit, fixed in advance; all if not given.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="The true ε, at δ, of a Gaussian mechanism to simulate.", show_default=False),
    ] = None,
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    repeats: Annotated[int, typer.Option("--repeats", help="Simulated audits.")] = 20,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Say what an audit can prove before you run it: the most for its size, and what to expect at a true ε.

    Example: can 1000 members and 1000 non-members show an ε of 4?

        dosimeter plan --members 1000 --epsilon 4

    A perfect attack could prove ε ≥ 5.9 for adding or removing one record, but the best attack on Gaussian noise with
    ε = 4 proves about 1.7 on average; for replacing one record these are 11.7 and 3.3.
    """
    from dosimeter.pipelines.power import what_can_be_shown

    answer = what_can_be_shown(
        members=members,
        nonmembers=nonmembers,
        canaries=canaries,
        guesses=guesses,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        repeats=repeats,
        seed=seed,
    )
    if json:
        print_json(answer.to_dict())
        return
    _show(answer)


def _show(answer: Power) -> None:
    from dosimeter.estimate import number, percent

    budget = answer.budget
    sizes = f"{budget.members} members, {budget.nonmembers} nonmembers, {budget.canaries} canaries"
    table(
        f"The most a perfect attack could prove ({sizes}, {budget.guesses} guesses, δ = {answer.delta:g}, "
        f"{percent(answer.confidence)})",
        ["estimator", "ε ≥", "validity", "setting"],
        [(row.method, number(row.epsilon), row.validity, row.setting) for row in answer.largest_provable],
    )
    if answer.expected is None or answer.needed is None or answer.true_epsilon is None:
        return
    true = number(answer.true_epsilon)
    table(
        f"What to expect if the mechanism is Gaussian with ε = {true}",
        ["estimator", "mean", "lowest", "highest", "validity"],
        [
            (row.method, number(row.mean), number(row.lowest), number(row.highest), row.validity)
            for row in answer.expected
        ],
    )
    out.print(
        f"To prove ε ≥ {true} at all, even a perfect attack needs {answer.needed.clopper_pearson_each} members and as "
        f"many non-members (Clopper–Pearson), or {answer.needed.one_run_guesses_at_delta_0} right guesses in one run "
        "(at δ = 0).",
        markup=False,
        soft_wrap=True,
    )
