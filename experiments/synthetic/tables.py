"""The tables of the docs from the audits that are kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "tutorials" / "synthetic.md"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
NAMES = {"adult": "Adult", "bank": "Bank marketing"}


def write(rows: list[dict[str, Any]], asked: dict[str, dict[str, int]]) -> None:
    """Put the tables between the marks of the page; `asked` is how many audits of which generator the command makes."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n{measured(rows)}\n{_open(rows, asked)}{END}{tail}", encoding="utf-8")


def measured(rows: list[dict[str, Any]]) -> str:
    """All tables as Markdown."""
    sizes = sorted({(r["data"], r["records"]) for r in rows if "data" in r}, key=lambda pair: (pair[0], -pair[1]))
    parts = [_compared([r for r in rows if r.get("records") == size], data) for data, size in sizes]
    parts += [_null(r) for r in rows if r["key"] == "null"]
    parts += [_hidden([r for r in rows if r["key"].startswith("hidden")])]
    return "\n".join(part for part in parts if part)


def _open(rows: list[dict[str, Any]], asked: dict[str, dict[str, int]]) -> str:
    """What the command would measure and nobody has run yet."""
    largest = max(r["records"] for r in rows if "data" in r)
    done = Counter((r["data"], r["generator"]) for r in rows if r.get("data") and r["records"] == largest)
    missing = {
        data: [f"{name} ({done[data, name]} of {count})" for name, count in counts.items() if done[data, name] < count]
        for data, counts in asked.items()
    }
    told = "; ".join(f"{NAMES[data]}: {', '.join(names)}" for data, names in missing.items() if names)
    return f"Audits that the command would still make, at {largest} records: {told}.\n\n" if told else ""


def _of(rows: list[dict[str, Any]], data: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("data") == data:
            found.setdefault(row["generator"], []).append(row)
    return found


def _compared(rows: list[dict[str, Any]], data: str) -> str:
    groups = _of(rows, data)
    order = sorted(groups, key=lambda name: -median(r["epsilon"] for r in groups[name]))
    first = groups[order[0]][0]
    lines = [
        f"**{NAMES[data]}**, {first['records']} records, all with a coin; a perfect attack would prove about ε ≥ "
        f"{first['ceiling']:.2f}:",
        "",
        "| generator | audits | references | ε proven, median (range) | states | records copied, in / out | shapes | "
        "pairs | "
        "model on release / on members | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in order:
        found = groups[name]
        proven = [r["epsilon"] for r in found]
        span = f" ({min(proven):.2f}–{max(proven):.2f})" if len(found) > 1 else ""
        stated = found[0]["stated"]
        whole = [r["cpu_seconds"] for r in found if r["computed"] > r["references"]]  # none of its releases was kept
        model = f"{_mid(found, 'trained_synthetic'):.3f} / {_mid(found, 'trained_real'):.3f}"
        lines.append(
            f"| {name} | {len(found)} | {found[0]['references']} | {median(proven):.2f}{span} | "
            f"{'–' if stated is None else f'ε ≤ {stated:g}'} | "
            f"{_mid(found, 'copies_in'):.1%} / {_mid(found, 'copies_out'):.1%} | {_mid(found, 'shapes'):.2f} | "
            f"{_mid(found, 'trends'):.2f} | {model} | {f'{median(whole):.0f}' if whole else '–'} |"
        )
    return "\n".join([*lines, "", _ranking(groups), ""])


def _ranking(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Which generators stand above which under every seed that those with the most audits have."""
    proven = {name: {r["seed"]: r["epsilon"] for r in found} for name, found in groups.items()}
    most = max(map(len, proven.values()))
    full = {name: found for name, found in proven.items() if len(found) == most}
    seeds = sorted(set.intersection(*(set(found) for found in full.values())))
    if len(full) < 2 or len(seeds) < 2:
        return ""
    order = sorted(full, key=lambda name: -median(full[name].values()))
    tiers = [[order[0]]]
    for place in range(1, len(order)):
        above, below = order[:place], order[place:]
        if all(min(full[a][s] for a in above) > max(full[b][s] for b in below) for s in seeds):
            tiers.append([])
        tiers[-1].append(order[place])
    told = " > ".join(tier[0] if len(tier) == 1 else f"({', '.join(tier)})" for tier in tiers)
    mixed = " In brackets the order changes with the seed, or nothing is proven." if len(tiers) < len(order) else ""
    return f"Among those with {most} audits, the order is the same under every seed: {told}.{mixed}"


def _null(row: dict[str, Any]) -> str:
    return (
        f"**A generator that never saw the members** ({row['records']} records of Adult, default arguments, fresh "
        f"coins): "
        f"{row['above']} of {row['audits']} audits proved an ε above 0, the largest {row['largest']:.2f}; at 95 % "
        "confidence at most 5 % may.\n"
    )


def _hidden(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        "**Generators that hide what they do**, 8 references, one audit each:",
        "",
        "| data | generator | records | unit | ε proven | perfect attack | its copies alone | "
        "records copied, in / out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: str(row["key"].split(" | ")[1])):
        _, data, case = row["key"].split(" | ")
        sure = "–" if row["sure"] is None else f"{row['sure']:.2f}"
        lines.append(
            f"| {data} | {case} | {row['records']} | {row['unit']} | {row['epsilon']:.2f} | {row['ceiling']:.2f} | "
            f"{sure} | {row['copies_in']:.1%} / {row['copies_out']:.1%} |"
        )
    told = (
        "*Its copies alone* is the most that as many right guesses can prove with 95 % confidence. What is proven "
        "beyond it comes from the other records, which leak a little through their columns."
    )
    return "\n".join([*lines, "", told, ""])


def _mid(rows: list[dict[str, Any]], name: str) -> float:
    return median(row[name] for row in rows)
