"""Results as a table for people, as Markdown and as JSON."""

from __future__ import annotations

from typing import Any

_HEAD = ["task", "against", "ours (ms)", "theirs (ms)", "ratio", "our value", "their value", "target", "met"]
_GROWTH_HEAD = ["scores of each side", "ms", "ns / (n log2 n)", "value"]
_IMPORT_HEAD = ["import", "CPU (ms)", "wall (ms)"]
_ABOUT = """\
CPU time of one process, one thread; medians of repetitions that take turns (ours, theirs, ours, …). The ratio is their
time over ours. Data: scores N(1, 1) of members and N(0, 1) of non-members, which is exactly 1-GDP (ε = 4.377 at
δ = 1e-5); canaries score N(S, 1) for fair coins S. All bounds at 95 % and δ = 1e-5; intervals at δ = 0.05. ~ marks a
time extrapolated from a part of the work."""


def text(results: dict[str, Any]) -> str:
    """Everything, aligned for a terminal."""
    return _compose(results, _aligned, "")


def markdown(results: dict[str, Any]) -> str:
    """Everything, as the page that is kept."""
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    head = f"# Benchmark results\n\nMade by `make bench`; not edited by hand.\n\n{_ABOUT}\n\n"
    made_on = f"{machine}; {versions}; SHA-256 of the measured code starts with {results['source']}.\n\n"
    return head + made_on + _compose(results, _piped, "## ")


def _compose(results: dict[str, Any], lay_out: Any, mark: str) -> str:
    notes: dict[str, int] = {}
    parts = []
    if results["rows"]:
        lines = [_line(row, notes) for row in results["rows"]]
        parts.append(f"{mark}Against targets and peers\n\n{lay_out(_HEAD, lines)}")
        parts.extend(f"[{number}] {note}" for note, number in notes.items())
    if results["growth"]:
        lines = [
            [f"{g['members']:,}", _milliseconds(g["seconds"]), f"{g['per_n_log_n']:.3g}", _value(g["value"])]
            for g in results["growth"]
        ]
        parts.append(f"{mark}Growth of lower_bound\n\n{lay_out(_GROWTH_HEAD, lines)}")
    if results["import"]:
        found = results["import"]
        lines = [[name, _milliseconds(t["cpu"]), _milliseconds(t["wall"])] for name, t in found["times"].items()]
        loaded = ", ".join(found["forbidden"]) or "none"
        parts.append(
            f"{mark}Import\n\n{lay_out(_IMPORT_HEAD, lines)}\n\n"
            f"`import dosimeter` takes {found['ratio']:.2f} × the CPU time of `import scipy.stats` "
            f"(target ≤ {found['most']:g}: {_yes(found['ratio'] <= found['most'])}). "
            f"Loaded of what must not be loaded: {loaded}."
        )
    missed = [f"- {row['work']}: {row['target']}" for row in results["rows"] if row["met"] == "no"]
    parts.append(f"{mark}Missed\n\n" + ("\n".join(missed) if missed else "No target is missed."))
    parts.extend(f"Left out: {reason}" for reason in results["left_out"])
    if results["changed"]:
        parts.append("Files under src/ were changed during this run, so its rows may not be of one state of the code.")
    return "\n\n".join(parts) + "\n"


def _line(row: dict[str, Any], notes: dict[str, int]) -> list[str]:
    theirs = row["theirs"]
    work = row["work"]
    if theirs and row["note"]:
        work += f" [{notes.setdefault(row['note'], len(notes) + 1)}]"
    return [
        work,
        row["peer"] if theirs else "",
        _milliseconds(row["ours"]["seconds"]),
        (("~" if theirs["scale"] != 1 else "") + _milliseconds(theirs["seconds"])) if theirs else "",
        _ratio(row["ratio"]),
        _value(row["ours"]["value"]) + (f" (error {row['error']:.0e})" if row["error"] is not None else ""),
        _value(theirs["value"]) + (f" (error {theirs['error']:.0e})" if "error" in theirs else "") if theirs else "",
        row["target"],
        row["met"],
    ]


def _yes(good: bool) -> str:
    return "met" if good else "missed"


def _milliseconds(seconds: float) -> str:
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _value(found: Any) -> str:
    if found is None:
        return ""
    if isinstance(found, list):
        return "[" + ", ".join(f"{v:.6f}" for v in found) + "]"
    return f"{found:.4g}" if 0 < abs(found) < 0.1 else f"{found:.4f}"


def _aligned(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *lines])


def _piped(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])
