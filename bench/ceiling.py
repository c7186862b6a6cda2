"""How close a bound comes to the best that any test could do on the same scores.

The scores come from known laws, so the true log-odds of every record are known. For each ε the mechanism "same scores,
log-odds clipped to [−ε, ε]" is ε-DP, and no valid test rejects ε more often than the Neyman–Pearson test of the truth
against it. The ceiling is the ε up to which that test rejects, with the same allowance for δ as the bound.

    python bench/ceiling.py                     # 40 draws of 2000 coins for each shape
    python bench/ceiling.py --draws 200 --only gauss
    python bench/ceiling.py --peers             # also jax-privacy, PrivacyGuard and opake-auditing, in both its forms
    python bench/ceiling.py --peers --write     # into bench/ceiling.md; the others are slow: --peer-draws 5
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import split_ceiling
from scipy import special, stats

HERE = Path(__file__).resolve().parent
KEPT = HERE / "ceiling.json"
RECORDS, DELTA, ALPHA = 2000, 1e-5, 0.05
STEP = 0.02  # of the ceiling's grid of ε
TOLD = 60  # of the draws of a split: those whose tests are told the log-odds, too
MORE = {"gauss 0.5": 10}  # times as many draws: its ratio varies most
_HEAVIEST, _WHOLE = 6.0, 200  # weights so fine that more steps change nothing


class Peer(NamedTuple):
    """A column of the table: the environment of a library, the file that asks it, and which of its forms."""

    environment: str
    file: str
    form: str = ""


PEERS = {
    "jax-privacy": Peer("jax-privacy", "peer_ceiling_jax"),
    "PrivacyGuard": Peer("privacyguard", "peer_ceiling_guard"),
    "opake, default": Peer("opake", "peer_ceiling_opake"),
    "opake, (ε, δ)": Peer("opake", "peer_ceiling_opake", "eps_delta"),
}


class Shape(NamedTuple):
    """Laws of the scores of members and of non-members, and the largest ε that they allow (infinite if none)."""

    members: Callable[[np.random.Generator, int], np.ndarray]
    nonmembers: Callable[[np.random.Generator, int], np.ndarray]
    log_odds: Callable[[np.ndarray], np.ndarray]
    truth: float = math.inf


def _of(members: Any, nonmembers: Any, truth: float = math.inf) -> Shape:
    return Shape(
        lambda rng, n: members.rvs(n, random_state=rng),
        lambda rng, n: nonmembers.rvs(n, random_state=rng),
        lambda x: members.logpdf(x) - nonmembers.logpdf(x),
        truth,
    )


def _response(epsilon: float) -> Shape:
    q = float(special.expit(epsilon))
    return Shape(
        lambda rng, n: (rng.random(n) < q) + rng.random(n) / 2,
        lambda rng, n: (rng.random(n) > q) + rng.random(n) / 2,
        lambda x: np.where(x >= 1, epsilon, -epsilon),
        epsilon,
    )


def _leakers(fraction: float, distance: float) -> Shape:
    return Shape(
        lambda rng, n: rng.normal(size=n) + distance * (rng.random(n) < fraction),
        lambda rng, n: rng.normal(size=n),
        lambda x: np.log1p(fraction * np.expm1(np.minimum(distance * x - distance**2 / 2, 600))),
    )


SHAPES = {
    "no leak": _of(stats.norm(0), stats.norm(0), 0.0),
    "gauss 0.5": _of(stats.norm(0.5), stats.norm(0)),
    "gauss 1": _of(stats.norm(1), stats.norm(0)),
    "gauss 2": _of(stats.norm(2), stats.norm(0)),
    "laplace 1": _of(stats.laplace(1), stats.laplace(0), 1.0),
    "randomised response 1": _response(1.0),
    "2 % leakers": _leakers(0.02, 8.0),
    "N(1, 0.7²) against N(0, 1)": _of(stats.norm(1, 0.7), stats.norm(0)),
    "t3 shifted by 1.5": _of(stats.t(3, 1.5), stats.t(3), 1.683),
    "exponential 2 against 1": _of(stats.expon(scale=2), stats.expon(scale=1)),
}


POOLS = {  # shape and sizes of a random split, and for how many of the draws
    ("gauss 1", (1000, 1000)): 1.0,
    ("gauss 1", (500, 2000)): 1.0,
    ("gauss 1", (100, 10_000)): 1.0,
    ("gauss 1", (10_000, 10_000)): 0.1,
    ("2 % leakers", (1000, 1000)): 1.0,
}


def draw(shape: Shape, seed: int, records: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    """Scores and fair coins."""
    rng = np.random.default_rng([seed, 4])
    inside = rng.random(records) < 0.5
    return np.where(inside, shape.members(rng, records), shape.nonmembers(rng, records)), inside


def ceiling(log_odds: np.ndarray, inside: np.ndarray, delta: float = DELTA, alpha: float = ALPHA) -> float:
    """The ε up to which the Neyman–Pearson test with the true log-odds rejects, on a grid of STEP."""
    leaning, right = np.abs(log_odds), (log_odds > 0) == inside
    low, high = 0, math.ceil(leaning.max() / STEP)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _rejects(middle * STEP, leaning, right, delta, alpha) else (low, middle)
    return low * STEP


def _rejects(epsilon: float, leaning: np.ndarray, right: np.ndarray, delta: float, alpha: float) -> bool:
    from dosimeter.estimators.headline.ranks import binomial, upper_tail

    excess = np.clip(leaning - epsilon, 0, _HEAVIEST)
    if excess.max() <= 0:
        return False
    weights = np.where(excess > 0, np.maximum(np.round(excess / excess.max() * _WHOLE), 1), 0).astype(int)
    mean = leaning.size * delta * float(special.expit(-epsilon))
    allowance = max(math.ceil(mean / (alpha / 2)) - 1, 0)
    observed = int(weights @ right) - int(np.sort(weights)[::-1][:allowance].sum())
    q = float(special.expit(epsilon))
    parts = [(weight, binomial(int(n), q)) for weight, n in enumerate(np.bincount(weights)) if weight and n]
    return upper_tail(parts, observed) <= alpha - mean / (allowance + 1)


def ours(scores: np.ndarray, inside: np.ndarray) -> float:
    """The headline."""
    import dosimeter as dm

    return dm.lower_bound(dm.OneRun(scores, inside), delta=DELTA).low


def peers(names: list[str], draws: int) -> dict[str, dict[str, list[float]]]:
    """What each library says of the first draws, from its own environment; those that cannot be had are left out.

    Some take a quarter of a minute for one audit, so answers are kept in ceiling.json: a stopped run resumes, and one
    with more draws asks for the missing ones only. Answers of other versions or to other questions are not used.
    """
    from environments import RECIPES

    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name, (environment, file, form) in PEERS.items():
        installed = [step.arguments for step in RECIPES[environment].steps]
        asked = {"installed": installed, "form": form, "records": RECORDS, "delta": DELTA, "alpha": ALPHA}
        if kept.get(name, {}).get("asked") != asked:
            kept[name] = {"asked": asked, "answers": {}}
        known = kept[name]["answers"]
        for shape in names:
            first = len(known.get(shape, ()))
            if first >= draws:
                continue
            print(f"{name}: {shape}, draws {first + 1} to {draws}", file=sys.stderr, flush=True)
            job = {"name": shape, "first": first, "draws": draws, "form": form}
            found = _asked(environment, file, job)
            if isinstance(found, str):
                print(f"{name} is left out: {found}", file=sys.stderr)
                break
            known[shape] = [*known.get(shape, ()), *found]
            temporary = KEPT.with_suffix(".tmp")
            temporary.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            temporary.replace(KEPT)
    found = {name: kept[name]["answers"] for name in PEERS}
    whole = [name for name, known in found.items() if all(len(known.get(shape, ())) >= draws for shape in names)]
    return {name: {shape: found[name].get(shape, [])[:draws] for shape in names} for name in whole}


def _asked(environment: str, file: str, job: dict[str, Any]) -> list[float] | str:
    """The bounds of a library; a sentence where it cannot be had."""
    from environments import NotInstalledError, install, interpreter

    try:
        install(environment)
    except NotInstalledError as error:
        return str(error)
    command = [str(interpreter(environment)), str(HERE / f"{file}.py"), json.dumps(job)]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=clean)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
    return list(json.loads(done.stdout.splitlines()[-1]))


def answer(bound: Callable[[np.ndarray, np.ndarray], float]) -> None:
    """What a peer's file runs: its bound on the draws that are asked for, as JSON."""
    job = json.loads(sys.argv[1])
    shape = SHAPES[job["name"]]
    print(json.dumps([bound(*draw(shape, seed)) for seed in range(job["first"], job["draws"])]))


def asked_form() -> str:
    """Which form of a peer's bound its file was asked for."""
    return str(json.loads(sys.argv[1]).get("form", ""))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--peers", action="store_true", help="other libraries too; installs them once")
    parser.add_argument("--peer-draws", type=int, default=20, help="of the draws, how many the others are given")
    parser.add_argument("--write", action="store_true", help="write bench/ceiling.md too")
    chosen = parser.parse_args()
    names = [name for name in SHAPES if chosen.only in name]
    given = min(chosen.draws, chosen.peer_draws)
    others = peers(names, given) if chosen.peers else {}
    lines = [
        f"| shape | bound | ceiling | ratio | {''.join(f'{n} | ' for n in others)}above the truth: ours |"
        + "".join(f" {name} |" for name in others),
        "|---" * (5 + 2 * len(others)) + "|",
    ]
    print("\n".join(lines), flush=True)
    for name in names:
        lines.append(_row(name, chosen.draws * MORE.get(name, 1), others))
        print(lines[-1], flush=True)
    lines += [
        "",
        "## A random split",
        "",
        f"*Learned / told*: means of the first {TOLD} draws, as called and when the tests are told the true log-odds. "
        "Last, for replacing one record: the ε that half of the audits exceed, and the ε that no valid test exceeds in"
        " more than half of them, whatever it knows (docs/headline.md, Lemma 11).",
        "",
        "| members + non-members | shape | replace-one | replace-one, δ = 0 | add/remove | replace-one: learned / told"
        " | δ = 0 | add/remove | half of the audits exceed | at most |",
        "|---" * 10 + "|",
    ]
    for (name, sizes), part in POOLS.items():
        if name in names:
            lines.append(_pools_row(name, sizes, max(round(chosen.draws * part), 2)))
            print(lines[-1], flush=True)
    if chosen.write:
        command = (
            f"python bench/ceiling.py --draws {chosen.draws}{f' --peers --peer-draws {given}' * bool(others)} --write"
        )
        head = (
            f"# The bound and its ceiling\n\nWritten by `{command}`. {RECORDS} coins, δ = {DELTA:g}, {1 - ALPHA:.0%} "
        )
        head += (
            f"confidence, means over {chosen.draws} draws"
            f" ({', '.join(f'{times} times as many of {name}' for name, times in MORE.items())})"
            f"{f'; others are given the first {given}' * bool(others)}. "
            "A dash: the laws allow any ε, so no claim can be false.\n"
        )
        (HERE / "ceiling.md").write_text(head + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


def _row(name: str, draws: int, others: dict[str, dict[str, list[float]]]) -> str:
    """The means of all bounds on one shape, the ceiling, and how often each bound is above the truth."""
    shape = SHAPES[name]
    drawn = [draw(shape, seed) for seed in range(draws)]
    bounds = [np.array([ours(*pair) for pair in drawn]), *(np.array(found[name]) for found in others.values())]
    best = [ceiling(shape.log_odds(scores), inside) for scores, inside in drawn]
    means = [float(found.mean()) for found in bounds]
    ratio = _ratio(bounds[0], np.array(best)) if np.any(best) else "–"
    above = [f"{np.mean(found > shape.truth):.1%}" if math.isfinite(shape.truth) else "–" for found in bounds]
    cells = [f"{means[0]:.3f}", f"{np.mean(best):.3f}", ratio, *(f"{mean:.3f}" for mean in means[1:]), *above]
    return f"| {name} | {' | '.join(cells)} |"


def _ratio(bounds: np.ndarray, ceilings: np.ndarray) -> str:
    """The ratio of the means, and its standard error over the draws."""
    ratio = bounds.mean() / ceilings.mean()
    error = np.std(bounds - ratio * ceilings) / math.sqrt(len(bounds)) / ceilings.mean()
    return f"{ratio:.3f} ± {error:.3f}"


def _pools_row(name: str, sizes: tuple[int, int], draws: int) -> str:
    """The mean bounds of a random split, for both kinds of neighbours and without δ, with their standard errors.

    Beside them what the tests prove when they are told the shape, and what no test can exceed.
    """
    import dosimeter as dm

    shape, total = SHAPES[name], sum(sizes)
    drawn = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 5])
        scores = np.concatenate([shape.members(rng, sizes[0]), shape.nonmembers(rng, sizes[1])])
        drawn.append((scores, split_ceiling.of(shape.log_odds(scores), np.arange(total) < sizes[0])))
    means, told, half = [], [], 0.0
    for neighbours, delta in (("replace", DELTA), ("replace", 0.0), ("add/remove", DELTA)):
        pairs = [dm.Scores(scores[split.inside], scores[~split.inside]) for scores, split in drawn]
        found = np.array([dm.lower_bound(pair, delta=delta, neighbours=neighbours).low for pair in pairs])
        means.append(f"{found.mean():.3f} ± {found.std() / math.sqrt(draws):.3f}")
        knowing = [split_ceiling.told(scores, split, delta, neighbours) for scores, split in drawn[:TOLD]]
        told.append(f"{found[:TOLD].mean():.2f} / {np.mean(knowing):.2f}")
        half = half or float(np.median(found))
    at_most = split_ceiling.exceeded_by_half([split for _, split in drawn])
    cells = [*means, *told, f"{half:.2f}", f"{at_most:.2f}"]
    return f"| {sizes[0]} + {sizes[1]} | {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
