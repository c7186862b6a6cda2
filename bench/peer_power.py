"""The peers of `power.py`, each attacking the same target: SACRO-ML, ART and PrivacyGuard.

python bench/peer_power.py task.npz TARGET; prints one JSON object. It runs in the environment of the peers.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import power_task as power
import torch

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)

Row = dict[str, Any]
NO_EPSILON = "no ε"


def sacro(task: power.Task, target: Any, name: str) -> Iterator[Row]:
    """LiRA as SACRO-ML trains and scores it; the second mode reuses the shadow models of the first."""
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.target import Target

    inside, outside = task.included, ~task.included
    sides = [np.asarray(part, float) for part in (task.X[inside], task.X[outside])]
    labels = [task.y[inside], task.y[outside]]
    with tempfile.TemporaryDirectory() as folder:
        shared = 0.0
        for mode in ("offline", "online-carlini"):
            attack = LIRAAttack(folder, write_report=False, n_shadow_models=power.REFERENCES, mode=mode)
            attack.report_individual = True
            attack.result = {key: [] for key in RESULT_KEYS}
            given = Target(
                model=target,
                dataset_name="power",
                **dict(zip(("X_train", "X_test"), sides, strict=True)),
                **dict(zip(("y_train", "y_test"), labels, strict=True)),
                **dict(zip(("X_train_orig", "X_test_orig"), sides, strict=True)),
                **dict(zip(("y_train_orig", "y_test_orig"), labels, strict=True)),
            )
            seconds, _ = power.timed(lambda attack=attack, given=given: attack.attack(given))
            found = attack.attack_metrics[0]["individual"]
            scores, member = np.asarray(found["member_prob"]), np.asarray(found["member"], bool)
            note = " (default)" if mode == "offline" else ""
            yield {
                "tool": f"SACRO-ML LiRA, {mode}{note}",
                **power.judged(scores[member], scores[~member]),
                "seconds": seconds + shared,
                "claim": NO_EPSILON + " (p-values)",
            }
            shared = seconds if mode == "offline" else shared


RESULT_KEYS = (
    *("member_prob", "label", "target_logit", "out_p_norm", "out_prob", "out_mean", "out_std"),
    *("in_prob", "in_mean", "in_std"),
)


def art(task: power.Task, target: Any, name: str) -> Iterator[Row]:
    """ART's black-box attack learns from the outputs of half of the records, and is judged on the others."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import BlackBoxClassifier, SklearnClassifier

    def wrapped() -> Any:
        if type(target).__module__.startswith("sklearn."):
            return SklearnClassifier(target)
        return BlackBoxClassifier(target.predict_proba, task.X.shape[1:], target.classes_.size)

    sides = np.flatnonzero(task.included), np.flatnonzero(~task.included)
    for kind, note in (("nn", " (default)"), ("rf", "")):
        np.random.seed(power.SEED)  # noqa: NPY002 - the stream that ART draws from
        torch.manual_seed(power.SEED)

        def attacked(kind: str = kind) -> list[np.ndarray]:
            attack = MembershipInferenceBlackBox(wrapped(), attack_model_type=kind)
            X, y = task.X, task.y
            learn, judge = [rows[::2] for rows in sides], [rows[1::2] for rows in sides]
            attack.fit(X[learn[0]], y[learn[0]], X[learn[1]], y[learn[1]])
            return [np.ravel(attack.infer(X[rows], y[rows], probabilities=True)) for rows in judge]

        seconds, scores = power.timed(attacked)
        yield {"tool": f"ART black-box, {kind}{note}", **power.judged(*scores), "seconds": seconds, "claim": NO_EPSILON}


def privacyguard(task: power.Task, target: Any, name: str) -> Iterator[Row]:
    """PrivacyGuard analyses scores of references that the caller trains: halves, each record in 8 of 16."""
    import pandas as pd
    from privacy_guard.analysis.mia.aggregate_analysis_input import AggregationType
    from privacy_guard.attacks.lira_attack import LiraAttack
    from privacy_guard.attacks.rmia_attack import RmiaAttack

    masks = power.halves(task.y.size, power.SEED)
    trained, references = power.timed(
        lambda: [power.estimator(name, 1 + k).fit(task.X[mask], task.y[mask]) for k, mask in enumerate(masks)]
    )
    asked, ours = power.timed(lambda: np.stack([_right(model, task.X, task.y) for model in (target, *references)]))
    others = np.stack([_right(model, task.population_X, task.population_y) for model in (target, *references)])

    def lira_frames() -> list[Any]:
        logits = np.log(ours) - np.log1p(-ours)
        inside, outside = (np.where(rows, logits[1:], np.nan) for rows in (masks, ~masks))
        columns = {"score_orig": logits[0]}
        for side, values in (("in", inside), ("out", outside)):
            columns[f"score_mean_{side}"] = np.nanmean(values, axis=0)
            columns[f"score_std_{side}"] = np.nanstd(values, axis=0) + 1e-6
        return _parted(pd.DataFrame(columns), task.included)

    def rmia_frames() -> list[Any]:
        frames = []
        for values, member in ((ours, masks), (others, np.zeros((len(masks), others.shape[1]), bool))):
            columns = {"score_orig": values[0]}
            for k in range(len(masks)):
                columns[f"score_ref_{k}"], columns[f"member_ref_{k}"] = values[1 + k], member[k]
            frames.append(pd.DataFrame(columns))
        return [*_parted(frames[0], task.included), frames[1].assign(user_id=np.arange(others.shape[1]))]

    whole = AggregationType.NONE if hasattr(AggregationType, "NONE") else AggregationType.MAX
    ways = {
        "LiRA online, own variances": lambda: LiraAttack(*lira_frames(), whole, online_attack=True),
        "LiRA online, variance mix": lambda: LiraAttack(
            *lira_frames(), whole, online_attack=True, use_fixed_variance=True, std_dev_type="mix"
        ),
        "RMIA offline (default)": lambda: RmiaAttack(*rmia_frames(), whole, REFERENCES_USED["offline"]),
        "RMIA online": lambda: RmiaAttack(*rmia_frames(), whole, REFERENCES_USED["online"], online=True),
    }
    for way, make in ways.items():
        seconds, (scores, claim) = power.timed(lambda make=make: _analysed(make()))
        yield {
            "tool": f"PrivacyGuard {way}",
            **power.judged(*scores),
            "seconds": trained + asked + seconds,
            "claim": claim,
        }


REFERENCES_USED = {"offline": power.REFERENCES // 2, "online": power.REFERENCES}


def _right(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The probability of each record's label, away from 0 and 1."""
    return np.clip(model.predict_proba(X)[np.arange(y.size), y], 1e-7, 1 - 1e-7)


def _parted(frame: Any, included: np.ndarray) -> list[Any]:
    frame["user_id"] = np.arange(len(frame))
    return [frame[included].copy(), frame[~included].copy()]


def _analysed(attack: Any) -> tuple[list[np.ndarray], str]:
    """The scores of members and non-members, and the ε that the analysis states."""
    from privacy_guard.analysis.mia.analysis_node import AnalysisNode

    found = attack.run_attack()
    sides = [found.df_train_user["score"].to_numpy(), found.df_test_user["score"].to_numpy()]
    smaller = min(side.size for side in sides)
    node = AnalysisNode(found, delta=power.DELTA, n_users_for_eval=smaller).run_analysis()
    return sides, f"ε = {node.eps:.2f} (not a bound); eps_cp {node.eps_cp:.2f}"


def main() -> None:
    task, name, wanted = power.Task.load(Path(sys.argv[1])), sys.argv[2], sys.argv[3:]
    target, pace = power.target_of(task, name), power.pace(task, name)
    rows: list[Row] = []
    for tool in (sacro, art, privacyguard):
        if wanted and tool.__name__ not in wanted:
            continue
        try:
            rows += tool(task, target, name)
        except Exception as error:  # one peer that fails leaves the others in the table
            rows.append({"tool": tool.__name__, "failed": f"{type(error).__name__}: {error}"[:200]})
    fingerprint = float(_right(target, task.X, task.y).sum())
    sys.__stdout__.write(json.dumps({"target": fingerprint, "pace": pace, "rows": rows}) + "\n")


if __name__ == "__main__":
    sys.stdout = sys.stderr  # libraries print; standard output is for the result
    main()
