"""`dosimeter demo`: three models on bundled data, audited, compared, and a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli._shared import Quiet, Seed, Verbose, note, out, table
from dosimeter.estimate import number

if TYPE_CHECKING:
    from dosimeter.audits.result import Audit


def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where audit.html and compare.html are written.")] = Path(),
    seed: Seed = 0,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train an over-fitted, a regularised and a differentially private model on bundled data, and audit all three.

    Example: everything into the current folder

        dosimeter demo --folder .
    """
    from dosimeter.audits.compare import compare
    from dosimeter.audits.model import audit_model
    from dosimeter.estimate import change

    x, y, inside = _digits(seed)
    audits, names, accuracies = [], [], []
    for name, model, mechanism in _models(seed):
        note(f"training and auditing: {name}", quiet=quiet)
        model.fit(x[inside], y[inside])
        audits.append(
            audit_model(
                model,
                data=(x, y),
                included=inside,
                mask_seed=seed,
                mechanism=mechanism,
                seed=seed,
                metadata={"name": name, "data": "scikit-learn digits", "unit_of_privacy": "one image"},
            )
        )
        names.append(name)
        accuracies.append(float(model.score(x[~inside], y[~inside])))
    comparison = compare(audits, names=names, utilities=accuracies)
    table(
        f"{inside.sum()} members, {(~inside).sum()} non-members by fair coins, δ = 1e-05, 95 %",
        ["model", "accuracy", "proven ε ≥", "guaranteed ε ≤", "ε*", "TPR at 1 % FPR"],
        [
            (
                row["name"],
                f"{100 * row['utility']:.1f} %",
                number(row["epsilon_low"]),
                "–" if row["epsilon_high"] is None else number(row["epsilon_high"]),
                _star(audit),
                f"{100 * row['tpr_at_fpr']['0.01']:.1f} %",
            )
            for row, audit in zip(comparison.rows(), audits, strict=True)
        ],
    )
    head = audits[0].headline
    out.print(
        f"Proven ({head.validity}) and guaranteed: both for {change(head.neighbours)}. ε* (parametric form) describes "
        "the one trained model and bounds nothing. TPR: as measured.",
        markup=False,
    )
    out.print(f"{names[0]}: {head.claim}", markup=False)
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


def _star(audit: Audit) -> str:
    """Epsilon* in its parametric form, or a dash where it has no value."""
    found = next((e for e in audit.estimates if e.method == "epsilon-star-parametric"), None)
    return "–" if found is None or not found.details["measurable"] else number(found.epsilon)


def _models(seed: int) -> list[tuple[str, Any, Any]]:
    """A forest grown until every leaf is pure, the same with leaves of many images, and a DP model."""
    from sklearn.ensemble import ExtraTreesClassifier

    from dosimeter.training.logistic import DpLogisticRegression

    trees = {"max_features": 1, "bootstrap": True, "random_state": seed}
    private = DpLogisticRegression(noise_multiplier=20.0, steps=60, clip=1.0, learning_rate=4.0, seed=seed)
    return [
        ("over-fitted", ExtraTreesClassifier(200, **trees), None),
        ("regularised", ExtraTreesClassifier(200, min_samples_leaf=10, **trees), None),
        ("DP", private, private.mechanism),
    ]
