"""What is kept of an audit of two models, the longer trained one first."""

from __future__ import annotations

from dosimeter import Audit


def ordering(audit: Audit, seed: int) -> dict[str, float]:
    """ε̃ and AUC after few and after many epochs, what the baseline shows, and the limit of the stand-ins."""
    many, few = audit.details["targets"]
    return {
        "seed": seed,
        "few": few["epsilon"],
        "many": many["epsilon"],
        "few_auc": few["auc"],
        "many_auc": many["auc"],
        "auc_limit": many["verdict"]["auc_limit"],
        "c_lb": many["c_lb"],
    }
