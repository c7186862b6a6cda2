"""An audit as a TOML file: its settings, checked before anything is loaded or trained."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dosimeter._validate import InputError, show

__all__ = ["TAKES", "Config", "bundled", "parse", "read", "size_in_bytes"]

LARGEST = 1_000_000
BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "b": 1}
SOURCES = ("network", "factory", "command", "sklearn", "pretrained")

# The settings of [attack], [estimate] and [budget] that each kind of audit takes, with the name of the argument that
# each of them becomes. `budget.memory` and `budget.timeout`, like [engine], say how to run and are for every kind.
TAKES: Mapping[str, Mapping[str, str]] = {
    "training": {
        "attack.name": "attack",
        "attack.signal": "signal",
        "attack.game": "game",
        "attack.points": "points",
        "attack.challenges": "challenges",
        "attack.select": "select",
        "attack.canaries": "canaries",
        "estimate.delta": "delta",
        "estimate.confidence": "confidence",
        "estimate.claim": "claim",
        "budget.shadows": "shadows",
        "budget.runs": "runs",
    },
    "one-run": {
        "attack.name": "attack",
        "attack.signal": "signal",
        "attack.canaries": "canaries",
        "estimate.delta": "delta",
        "estimate.confidence": "confidence",
        "budget.canaries": "count",
        "budget.shadows": "shadows",
    },
    "gradients": {
        "attack.neighbours": "neighbours",
        "attack.distance": "distance",
        "attack.over": "over",
        "attack.noise": "noise",
        "estimate.delta": "delta",
        "estimate.confidence": "confidence",
        "estimate.belief": "belief",
        "budget.repetitions": "repetitions",
    },
    "members-only": {
        "attack.generator": "generator",
        "attack.guesses": "guesses",
        "attack.protocol": "protocol",
        "estimate.confidence": "confidence",
        "budget.references": "references",
    },
    "model": {"estimate.delta": "delta", "estimate.confidence": "confidence"},
    "text": {
        "attack.name": "score",
        "attack.canaries": "kind",
        "estimate.delta": "delta",
        "estimate.confidence": "confidence",
        "budget.canaries": "count",
    },
}
HOW_TO_RUN = ("budget.memory", "budget.timeout")


def size_in_bytes(value: Any) -> int:
    """Read "4GB", "500 MB" or a number of bytes as a whole number."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?b)?\s*", str(value).lower())
    if isinstance(value, bool) or not isinstance(value, (str, int)) or found is None or float(found[1]) == 0:
        raise InputError(f"must be a size like 4GB or a number of bytes, got {show(value)}")
    return int(float(found[1]) * BYTES[found[2] or "b"])


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Bytes = Annotated[int, BeforeValidator(size_in_bytes)]
Seed = Annotated[int, Field(ge=0)]


class DataSection(_Section):
    """Which records: a random part of a data set, and the share of it that no model is trained on."""

    name: str | None = None
    file: str | None = None
    label: str | None = None
    records: Annotated[int, Field(ge=4)] | None = None
    seed: Seed = 0
    test_share: Share | None = None
    folder: str | None = None
    vocabulary: Annotated[int, Field(ge=2)] = 2048
    length: Count = 32
    encoder: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DataSection:
        if (self.name is None) == (self.file is None):
            raise InputError("needs exactly one of name and file")
        if self.label is not None and self.file is None:
            raise InputError("label names a column of data.file; leave it out")
        return self


class ModelSection(_Section):
    """What is trained: a named network, a factory, a script, a scikit-learn class, or a pre-trained transformer."""

    network: str | None = None
    hidden: list[Count] | None = None
    activation: str | None = None
    channels: list[Count] | None = None
    dimension: Count | None = None
    heads: Count | None = None
    layers: Count | None = None
    factory: str | None = None
    command: list[str] | None = None
    sklearn: str | None = None
    pretrained: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source(self) -> ModelSection:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"needs exactly one of {', '.join(SOURCES)}, got {' and '.join(given) or 'none'}")
        if self.options and given != ["sklearn"]:
            raise InputError(f"options are those of a scikit-learn class, but {given[0]} is given; leave them out")
        if self.network_options and given != ["network"]:
            raise InputError(f"{next(iter(self.network_options))} is for a network, but {given[0]} is given")
        return self

    @property
    def source(self) -> str:
        return next(name for name in SOURCES if getattr(self, name) is not None)

    @property
    def network_options(self) -> dict[str, Any]:
        """The settings of a named network that are given."""
        names = ("hidden", "activation", "channels", "dimension", "heads", "layers")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class DpSection(_Section):
    """DP-SGD by its noise, or by the ε that the noise is chosen for."""

    noise_multiplier: float | None = None
    epsilon: Annotated[float, Field(gt=0)] | None = None
    clip: float = 1.0
    microbatches: Count | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> DpSection:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise InputError("needs exactly one of noise_multiplier and epsilon")
        return self


class RecipeSection(_Section):
    """The fields of `dosimeter.training.Recipe`; what is left out has its default there."""

    optimiser: str | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | Literal["all"] | None = None
    sampling: str | None = None
    schedule: str | None = None
    precision: str | None = None
    dp: DpSection | None = None


class AttackSection(_Section):
    """How membership is guessed, and against which records."""

    name: str | None = None
    signal: str | None = None
    game: str | None = None
    points: list[int] | None = None
    challenges: Count | None = None
    select: str | None = None
    canaries: str | None = None
    neighbours: str | None = None
    distance: str | None = None
    over: Literal["x", "xy"] | None = None
    noise: str | None = None
    generator: str | None = None
    guesses: Count | str | None = None
    protocol: Literal["honest", "thesis"] | None = None


class EstimateSection(_Section):
    """At which δ and confidence, and which claimed ε is tested."""

    delta: Share = 1e-5
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    claim: Annotated[float, Field(ge=0)] | None = None
    belief: Annotated[float, Field(gt=0.5, lt=1)] | None = None


class BudgetSection(_Section):
    """How many trainings, and what each of them may take."""

    shadows: Count | None = None
    runs: Count | None = None
    canaries: Count | None = None
    repetitions: Count | None = None
    references: Annotated[int, Field(ge=0)] | None = None
    memory: Bytes | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None


class EngineSection(_Section):
    """Where the trainings run."""

    name: str = "local"
    workers: Count | None = None
    device: str | None = None


class StoreSection(_Section):
    """Where finished trainings are kept; a path is taken from the folder of the file."""

    folder: str = "dosimeter-store"


class ReportSection(_Section):
    """What is written beside the answer on the screen."""

    html: str | None = None
    json_file: str | None = Field(default=None, alias="json")


class Config(_Section):
    """A whole audit."""

    audit: Literal["training", "one-run", "gradients", "members-only", "model", "text"] = "training"
    name: str | None = None
    about: str = ""
    seed: Seed = 0
    data: DataSection
    model: ModelSection
    recipe: RecipeSection = RecipeSection()
    attack: AttackSection = AttackSection()
    estimate: EstimateSection = EstimateSection()
    budget: BudgetSection = BudgetSection()
    engine: EngineSection = EngineSection()
    store: StoreSection = StoreSection()
    report: ReportSection = ReportSection()

    @model_validator(mode="after")
    def _only_what_the_audit_takes(self) -> Config:
        for field in self.given():
            if field not in TAKES[self.audit]:
                others = ", ".join(kind for kind, takes in TAKES.items() if field in takes)
                raise InputError(f"{field} has no meaning for audit = {self.audit!r}, it is for {others}; leave it out")
        if self.data.encoder is not None and self.model.source in ("command", "pretrained"):
            raise InputError(f"data.encoder has no meaning for model.{self.model.source}; leave it out")
        if self.model.source in ("command", "sklearn") and self.recipe.model_fields_set:
            raise InputError(
                f"recipe.{min(self.recipe.model_fields_set)} is for torch models, but model.{self.model.source} "
                "trains by itself; leave [recipe] out"
            )
        return self

    def given(self) -> dict[str, Any]:
        """Return the settings of [attack], [estimate] and [budget] in the file, by field, without how to run."""
        found = {}
        for section in ("attack", "estimate", "budget"):
            part = getattr(self, section)
            for name in sorted(part.model_fields_set):
                field, value = f"{section}.{name}", getattr(part, name)
                if value is not None and field not in HOW_TO_RUN:
                    found[field] = value
        return found


def bundled() -> tuple[str, ...]:
    """List the names of the ready-made pipelines."""
    folder = resources.files("dosimeter") / "pipelines"
    return tuple(sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")))


def read(source: str, overrides: Sequence[str] = ()) -> Config:
    """Read the configuration in a TOML file, or a ready-made pipeline.

    Args:
        source: The path of the file, or the name of a pipeline.
        overrides: Settings that replace those of the file, each "section.key=value".

    Returns:
        The configuration.

    Raises:
        InputError: If there is no such file, or a setting in it is unknown or out of range.

    >>> read("digits-mlp", ["budget.shadows=8"]).budget.shadows
    8
    """
    path = Path(source)
    if path.suffix == "" and not path.exists():
        if source not in bundled():
            near = _nearest(source, bundled()) or "; see `dosimeter run --list`."
            raise InputError(f"there is no file and no ready-made pipeline {show(source)}{near}")
        text = (resources.files("dosimeter") / "pipelines" / f"{source}.toml").read_text(encoding="utf-8")
    else:
        text = _text(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    except RecursionError:
        raise InputError(f"{source} is nested too deeply; that is not a configuration.") from None
    for override in overrides:
        _override(values, override)
    return parse(values, source)


def parse(values: Mapping[str, Any], source: str = "the configuration") -> Config:
    """Check the values of a file; an error is one line that names the field."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(f"{source}: {_sentence(error.errors()[0])}") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"there is no file {path}; pass a TOML file, or a name of `dosimeter run --list`.")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} has more than {LARGEST} bytes; that is not a configuration.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; pass a TOML file.") from None


def _override(values: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    parts = [part.strip() for part in name.split(".")]
    if not equals or not all(parts):
        raise InputError(f"--set must be section.key=value, got {show(override)}; pass e.g. --set budget.shadows=8.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except RecursionError:
        raise InputError(f"--set {show(name)} is nested too deeply; pass a plain value.") from None
    for at, part in enumerate(parts[:-1]):
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise InputError(f"--set {override}: {'.'.join(parts[: at + 1])} is a value, not a section.")
    values[parts[-1]] = value


def _sentence(error: Any) -> str:
    """One plain sentence of what pydantic found."""
    location = [str(part) for part in error["loc"]]
    field, given = ".".join(location), show(error["input"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(location)
    if kind == "missing":
        return f"{field} is missing; add it."
    if kind == "literal_error":
        return f"{field} must be one of {context['expected']}, got {given}."
    if kind in ("value_error", "assertion_error"):
        return f"{field} {context.get('error', error['msg'])}.".strip()
    message = error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{field} must be {message}, got {given}."


def _unknown(location: list[str]) -> str:
    model: Any = Config
    for part in location[:-1]:
        model = _section(model, part)
    known = _names(model)
    inside = ".".join(location[:-1])
    near = _nearest(location[-1], known, f"{inside}." if inside else "")
    homes = [name for name in _names(Config) if location[-1] in _names(_section(Config, name))]
    if homes and homes[0] != inside:
        near = f", did you mean {homes[0]}.{location[-1]}?"
    return f"{'.'.join(location)} is not a setting{near or '; known are ' + ', '.join(known) + '.'}"


def _section(model: Any, name: str) -> Any:
    """The class of a section within a class, or None."""
    field = getattr(model, "model_fields", {}).get(name)
    kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, _Section)), None)


def _names(model: Any) -> list[str]:
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    found = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f", did you mean {prefix}{found[0]}?" if found else ""
