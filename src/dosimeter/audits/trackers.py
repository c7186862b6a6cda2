"""Experiment trackers: an audit beside the run that trained the model."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dosimeter import _validate as check
from dosimeter._files import write_text
from dosimeter._validate import InputError, require
from dosimeter.audits.notebook import rows
from dosimeter.audits.result import Audit

__all__ = ["numbers", "to_mlflow", "to_wandb", "words"]


def numbers(audit: Audit, prefix: str) -> dict[str, float]:
    """The finite numbers of an audit by name; `epsilon_low` is the headline where it is a proven bound."""
    headline = audit.headline
    values: dict[str, float] = {}
    if audit.guard.checked:
        values["shift"] = float(audit.guard.shift)
    if headline.validity.is_bound:
        values["epsilon_low"] = headline.low
    if audit.region is not None and audit.region.upper.is_bound:
        values["epsilon_high"] = audit.region.upper.epsilon
    values |= {f"{row.kind}s.{row.slug}": row.epsilon for row in rows(audit)}
    if audit.curve is not None:
        values["auc"] = audit.curve.auc
        values |= {f"tpr_at_fpr_{point.fpr:g}": point.tpr for point in audit.curve.tpr_at_fpr}
    return {f"{prefix}.{name}": value for name, value in values.items() if math.isfinite(value)}


def words(audit: Audit, prefix: str) -> dict[str, str]:
    """What a number means: without these nobody may quote it."""
    headline = audit.headline
    texts = {
        "claim": headline.claim,
        "validity": str(headline.validity),
        "neighbours": headline.neighbours or "unknown",
        "unit": str(headline.details.get("unit") or "record"),
        "delta": f"{headline.delta:g}",
        "confidence": f"{headline.confidence:g}",
        "guard": str(audit.guard),
        "dosimeter": audit.metadata.version or "unknown",
    }
    return {f"{prefix}.{name}": text for name, text in texts.items()}


def to_mlflow(audit: Audit, run_id: str | None, prefix: str, page: bool) -> str:
    """Log to the run with this id, to the active one, or to a new one."""
    name = check.text("prefix", prefix)
    mlflow = require("mlflow", extra="mlflow", caller="Audit.log_to_mlflow")
    with tempfile.TemporaryDirectory() as folder:
        _write(audit, Path(folder), page)
        if run_id is not None or mlflow.active_run() is None:
            with mlflow.start_run(run_id=run_id, nested=mlflow.active_run() is not None) as run:
                _log(mlflow, audit, name, folder)
        else:
            run = mlflow.active_run()
            _log(mlflow, audit, name, folder)
    return str(run.info.run_id)


def _log(mlflow: Any, audit: Audit, prefix: str, folder: str) -> None:
    mlflow.log_metrics(numbers(audit, prefix))
    mlflow.set_tags(words(audit, prefix))
    mlflow.log_artifacts(folder, artifact_path=prefix)


def to_wandb(audit: Audit, run: Any, prefix: str, page: bool) -> None:
    """Log to this run, or to the active one."""
    name = check.text("prefix", prefix)
    wandb = require("wandb", extra="wandb", caller="Audit.log_to_wandb")
    target = wandb.run if run is None else run
    if target is None:
        raise InputError("there is no active run of wandb; call wandb.init() first, or pass run=.")
    with tempfile.TemporaryDirectory() as folder:
        _write(audit, Path(folder), page)
        for key, value in _merged(numbers(audit, name), words(audit, name)).items():
            target.summary[key] = value
        artifact = wandb.Artifact(f"{name}-audit", type="privacy-audit", metadata=words(audit, name))
        artifact.add_dir(folder)
        target.log_artifact(artifact)


def _merged(first: Mapping[str, float], second: Mapping[str, str]) -> dict[str, float | str]:
    return {**first, **second}


def _write(audit: Audit, folder: Path, page: bool) -> None:
    """The files that a tracker keeps; the page first, since it may lack its extra."""
    if page:
        audit.to_html(folder / "audit.html")
    write_text(folder / "audit.json", audit.to_json() + "\n")
    write_text(folder / "audit.md", audit.to_markdown())
