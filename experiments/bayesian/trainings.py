"""The end-to-end system: each target of config.toml is an audit of a training, as `dosimeter run` would run it."""

from __future__ import annotations

import tempfile
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from dosimeter import Audit, InputError
from dosimeter.engine import Store

from ..shared import announce

HERE = Path(__file__).parent
CONFIG: dict[str, Any] = tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=32)
def audit(size: str, data: str, kind: str, store: Store | None) -> Audit:
    """Run a target, e.g. "adult" and "dp"; what the store holds is not trained again."""
    from dosimeter.pipelines import config
    from dosimeter.pipelines.launch import launch
    from dosimeter.pipelines.subjects import subject

    name = f"{data}, {kind}"
    settings = config.parse({"audit": "training", "name": name, **CONFIG[size][data][kind]}, f"config.toml, {size}")
    try:
        subjected = subject(settings, base=HERE)
    except InputError as error:  # a message on a data set begins with its name
        raise InputError(str(error).removeprefix("data.name: ")) from None
    if store is not None:
        announce(f"bayesian, {size}: {name}")
        return launch(settings, subjected, store=store)
    with tempfile.TemporaryDirectory() as folder:
        return launch(settings, subjected, store=Store(folder), progress=False)


def narrower(found: Audit) -> float:
    """How much narrower the joint interval is than Clopper–Pearson's; all of it where that has no upper end."""
    share = found.details["joint"]["narrower"]
    return 1.0 if share is None else float(share)


def row(name: str, found: Audit) -> dict[str, Any]:
    """One target as the paper's Table 2 has it: rates at the threshold, and the intervals."""
    point, meta = found.details["points"][0], found.metadata
    by_name = {estimate.method: estimate for estimate in found.estimates}
    accuracy = meta["utility"]["shadows"]["nonmembers"]
    stated = [guarantee.epsilon for guarantee in found.upper if guarantee.is_bound]
    return {
        "target": name,
        "models": f"{meta['shadows']} + {meta['runs']}",
        "accuracy of shadow models": "" if accuracy is None else f"{accuracy:.3f}",
        "guarantee": f"{min(stated):.2f}" if stated else "none",
        "FNR": f"{point['fn'] / (point['fn'] + point['tp']):.3f}",
        "FPR": f"{point['fp'] / (point['fp'] + point['tn']):.3f}",
        "headline": f"≥ {found.headline.low:.2f}",
        **{method: _span(by_name[method]) for method in ("clopper-pearson", "jeffreys", "bayesian")},
        "joint narrower": "no upper end" if found.details["joint"]["narrower"] is None else f"{narrower(found):.0%}",
    }


def _span(estimate: Any) -> str:
    return f"[{estimate.low:.2f}, {'∞' if estimate.high == float('inf') else f'{estimate.high:.2f}'}]"
