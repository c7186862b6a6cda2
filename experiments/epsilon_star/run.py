"""Epsilon* (Negoescu et al., 2024): the simulation study, goodness of fit, the landscapes, Theorem 2."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import InputError
from dosimeter.engine import Store
from dosimeter.estimators.goodness_of_fit import GoodnessOfFit, goodness_of_fit

from . import landscape, simulation

CONFIG = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
LANDSCAPES = ("landscape", "purchase")
ENDS_AT = 10_000
SMALL, MIDDLE = (1e-4, 1e-3), (0.05, 0.5)


@lru_cache(maxsize=2)
def _study(size: str) -> list[dict[str, Any]]:
    settings = CONFIG[size]["simulation"]
    return simulation.study(settings["sizes"], settings["repeats"])


@lru_cache(maxsize=2)
def _ends(size: str) -> list[dict[str, float]]:
    return simulation.ends(ENDS_AT, CONFIG[size]["simulation"]["repeats"])


@lru_cache(maxsize=4)
def _explored(size: str, which: str, store: Store | None) -> tuple[str, list[landscape.Outcome]]:
    return landscape.explore(CONFIG[size][which], store)


def _available(size: str, store: Store | None) -> Iterator[tuple[str, str, list[landscape.Outcome]]]:
    """The landscapes that can be explored here: which one, the data set, the outcomes."""
    for which in LANDSCAPES:
        with suppress(ImportError, InputError):
            yield which, *_explored(size, which, store)


@lru_cache(maxsize=2)
def _fits(size: str, store: Store | None) -> dict[str, GoodnessOfFit]:
    """Mixtures against held-out losses of one model without DP and one with the smallest ε."""
    settings = CONFIG[size]["simulation"]
    _, outcomes = _explored(size, "landscape", store)
    found = {}
    for outcome in (landscape.without_dp(outcomes), landscape.with_most_dp(outcomes)):
        for side, losses in zip(("members", "non-members"), outcome.losses, strict=True):
            sizes = [n for n in settings["samples"] if n <= losses.size // 2]
            found[f"{outcome.strategy.name}; {side}"] = goodness_of_fit(
                losses, components=settings["components"], sample_sizes=sizes
            )
    return found


def results(size: str = "mini", store: Store | None = None) -> dict[str, float | Exception]:
    """Exact values, means of the study, the noise at the ends, and what must hold in the landscapes."""
    found: dict[str, float | Exception] = dict(simulation.exact())
    for row in simulation.summary(_study(size)):
        if row["n"] == ENDS_AT and row["form"] == "parametric":
            found[f"study.{row['losses']}"] = row["mean"]
    at_end, in_middle = (simulation.spread(_ends(size), *span) for span in (SMALL, MIDDLE))
    found["ends.middle"] = in_middle / simulation.predicted_spread(*MIDDLE, ENDS_AT)
    found["ends.noisier"] = float(at_end > 10 * in_middle)
    for which in LANDSCAPES:
        try:
            _, outcomes = _explored(size, which, store)
        except (ImportError, InputError) as error:
            found[which] = error
            continue
        found[f"{which}.theorem2"] = float(np.mean([o.mean_rates <= o.mean_of_models for o in outcomes]))
        if size != "mini":  # three models of a few hundred records cannot show it
            plain, private = landscape.without_dp(outcomes), landscape.with_most_dp(outcomes)
            found[f"{which}.private_below"] = float(np.mean(private.epsilons) < np.mean(plain.epsilons))
    return found


def tables(size: str = "mini", store: Store | None = None) -> dict[str, str]:
    """The study, the p-values and the points of both landscapes, as Markdown."""
    from . import texts

    found = texts.of_study(simulation.summary(_study(size)))
    for which, name, outcomes in _available(size, store):
        if which == "landscape":
            found |= texts.of_fits(name, _fits(size, store))
        found |= texts.of_landscape(name, CONFIG[size][which], outcomes)
    return found


def figures(size: str, folder: Path, store: Store | None = None) -> dict[str, str]:
    """Pictures of all of it in `folder`: their captions by file name."""
    from . import pictures

    found = pictures.of_study(folder, _study(size))
    found |= pictures.of_ends(folder, _ends(size), ENDS_AT)
    for which, name, outcomes in _available(size, store):
        if which == "landscape":
            found |= pictures.of_fits(folder, name, _fits(size, store))
        found |= pictures.of_landscape(folder, which, name, outcomes)
    return found
