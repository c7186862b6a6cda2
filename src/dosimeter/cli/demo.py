"""`dosimeter demo`: three models on bundled data, audited, compared, and a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import Seed, err, out, table
from dosimeter.estimate import number


def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where audit.html and compare.html are written.")] = Path(),
    seed: Seed = 0,
) -> None:
    """Train an over-fitted, a regularised and a differentially private model on bundled data, and audit all three.

    Example: everything into the current folder

        dosimeter demo --folder .
    """
    from dosimeter.audits.compare import compare
    from dosimeter.audits.model import audit_model

    x, y, inside = _digits(seed)
    members, nonmembers = (x[inside], y[inside]), (x[~inside], y[~inside])
    audits, names, accuracies = [], [], []
    for name, model, mechanism in _models(seed):
        err.print(f"training and auditing: {name}")
        model.fit(*members)
        audits.append(
            audit_model(
                model,
                members=members,
                nonmembers=nonmembers,
                mechanism=mechanism,
                seed=seed,
                metadata={"name": name, "data": "scikit-learn digits", "unit_of_privacy": "one image"},
            )
        )
        names.append(name)
        accuracies.append(float(model.score(*nonmembers)))
    comparison = compare(audits, names=names, utilities=accuracies)
    table(
        f"{inside.sum()} members, {(~inside).sum()} non-members, δ = 1e-05, 95 %",
        ["model", "accuracy", "proven ε ≥", "accounted ε ≤", "ε*", "TPR at 1 % FPR"],
        [
            (
                row["name"],
                f"{100 * row['utility']:.1f} %",
                number(row["epsilon_low"]),
                "–" if row["epsilon_high"] is None else number(row["epsilon_high"]),
                number(row["epsilon_star"]),
                f"{100 * row['tpr_at_fpr']['0.01']:.1f} %",
            )
            for row in comparison.rows()
        ],
    )
    out.print(
        f"proven: {audits[0].headline.validity}, over all thresholds. accounted: a guarantee of the training. "
        "ε*: an instance metric of this one model, no bound for its training. TPR: as measured.",
        markup=False,
    )
    out.print(f"{names[0]}: {audits[0].headline.claim}", markup=False)
    out.print(str(audits[0].guard), markup=False)
    audits[0].to_html(folder / "audit.html")
    comparison.to_html(folder / "compare.html")
    out.print(f"Written: {folder / 'audit.html'} ({names[0]}), {folder / 'compare.html'} (all three)")


def _digits(seed: int) -> tuple[Any, Any, Any]:
    """The bundled digits, scaled by their public range, split by fair coins."""
    from sklearn.datasets import load_digits

    from dosimeter.evidence import fair_coins

    data = load_digits()
    return data.data / 16.0, data.target, fair_coins(len(data.target), seed)


def _models(seed: int) -> list[tuple[str, Any, Any]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    from dosimeter.training.logistic import DpLogisticRegression

    private = DpLogisticRegression(noise_multiplier=20.0, steps=60, clip=1.0, learning_rate=4.0, seed=seed)
    return [
        ("over-fitted", MLPClassifier((128,), alpha=0.0, max_iter=400, random_state=seed), None),
        ("regularised", LogisticRegression(C=0.02, max_iter=500), None),
        ("DP", private, private.mechanism),
    ]
