"""Generators of other packages as one function (records, seed) → rows, by the methods that they have.

No package is named in an import. Covered are objects and classes with `fit` and then `sample` or `generate`: SDV,
CTGAN, copulas, synthcity, dpmm, mostlyai-engine, REaLTabFormer, GReaT, SmartNoise, and the generators of dosimeter.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter._validate import InputError, show
from dosimeter.audits.synthetic.rows import read_real
from dosimeter.records import parted

__all__ = ["FitSample", "generator_of"]

_SAMPLES = ("sample", "generate")
_COUNTS = ("num_rows", "n_rows", "n_samples", "n_records", "count", "n", "samples", "k")
_SEEDS = ("seed", "random_state")
_WORDS = ("discrete_columns", "categorical_columns")


def generator_of(generate: Any, rows: int | None, usual: int) -> Callable[[Any, int], Any]:
    """Take a function (records, seed), or an object or class with `fit` and `sample`; `usual` is its count of rows."""
    if hasattr(generate, "fit"):
        if not isinstance(generate, type) and not any(hasattr(generate, name) for name in _SAMPLES):
            made = inspect.signature(generate.fit).return_annotation
            if made is inspect.Signature.empty or made is None:
                raise InputError(
                    f"generate is {show(generate)}, which has fit but neither sample nor generate; pass a function "
                    "(records, seed) that returns rows."
                )
        return FitSample(generate, usual if rows is None else rows)
    if not callable(generate):
        raise InputError(
            f"generate must be a function (records, seed) or an object with fit and sample, got {show(generate)}; pass "
            "one of these."
        )
    if rows is not None:
        raise InputError(
            f"rows={rows} is for objects with fit and sample; a function decides itself how many it returns."
        )
    try:
        inspect.signature(generate).bind(None, 0)
    except TypeError:
        raise InputError(
            f"generate must take (records, seed), got {show(generate)}; write lambda records, seed: …"
        ) from None
    except ValueError:  # a function of C has no signature
        pass
    return generate


@dataclass(frozen=True)
class FitSample:
    """Fit a fresh copy of a generator to records and sample so many rows."""

    generator: Any
    rows: int

    def __call__(self, records: Any, seed: int) -> Any:
        """Rows in whatever form the generator gives them."""
        made = self.generator() if isinstance(self.generator, type) else copy.deepcopy(self.generator)
        small = seed % 2**32  # what NumPy's older generators take
        if hasattr(made, "set_random_state"):
            made.set_random_state(small)
        elif hasattr(made, "random_state") and made.random_state is None:
            made.random_state = small
        fit = _taking(made.fit)
        if type(made).__module__.startswith("ctgan."):  # its decorator hides what fit takes
            fit = (*fit, "discrete_columns")
        table, named = _as_asked(made, records)
        given: dict[str, Any] = {name: small for name in _SEEDS if name in fit}
        given |= {name: _words_of(records) for name in _WORDS if name in fit}
        fitted = made.fit(table, **given)
        source = fitted if any(hasattr(fitted, name) for name in _SAMPLES) else made
        sample = getattr(source, next(name for name in _SAMPLES if hasattr(source, name)))
        return _plain(_sampled(sample, self.rows, small), named)

    def seeded(self) -> bool:
        """Whether the generator takes a seed, anywhere."""
        made = self.generator
        if hasattr(made, "set_random_state") or hasattr(made, "random_state"):
            return True
        methods = [getattr(made, name) for name in ("fit", *_SAMPLES) if hasattr(made, name)]
        taken = [_taking(made)] if isinstance(made, type) else []
        return any(name in names for names in (*taken, *map(_taking, methods)) for name in _SEEDS)


def _taking(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _as_asked(generator: Any, records: Any) -> tuple[Any, str | None]:
    """SDV from 2.0 on takes and gives dictionaries of tables by name; others the table itself."""
    tables = getattr(getattr(generator, "metadata", None), "tables", None)
    if isinstance(tables, Mapping) and len(tables) == 1 and type(generator).__module__.startswith("sdv."):
        name = next(iter(tables))
        return {name: records}, name
    return records, None


def _words_of(records: Any) -> list[Any]:
    """The names of the columns that are not numbers, as CTGAN asks for them."""
    X, _ = parted("records", records)
    names = list(X.columns) if hasattr(X, "columns") else list(X) if isinstance(X, Mapping) else []
    kinds = {field.name: field.kind for field in read_real(X, "records")[0].fields}
    return [name for name in names if kinds.get(str(name)) in ("word", "text")]


def _sampled(sample: Any, rows: int, seed: int) -> Any:
    taken = _taking(sample)
    given: dict[str, int] = {name: seed for name in _SEEDS if name in taken}
    count = next((name for name in _COUNTS if name in taken), None)
    return sample(rows, **given) if count is None else sample(**{count: rows}, **given)


def _plain(made: Any, name: str | None) -> Any:
    """A table from a frame, a dictionary with one table, or a loader."""
    if isinstance(made, Mapping) and (name in made or (len(made) == 1 and hasattr(next(iter(made.values())), "iloc"))):
        made = made[name] if name in made else next(iter(made.values()))
    return made.dataframe() if hasattr(made, "dataframe") else made
