"""Every setting of a TOML file in words: what `docs/pipelines.md` lists and `dosimeter run --init` writes.

Types, limits and defaults are read from the models and from the functions that the settings become arguments of, so
that nothing is said twice.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from pydantic import BaseModel

from dosimeter.pipelines.config import HOW_TO_RUN, TAKES, Config

__all__ = ["KEYS", "Key", "KeyText", "keys"]


class KeyText(NamedTuple):
    """What a setting means, an example of its value as TOML, and what holds without it where no code says so."""

    meaning: str
    example: str
    default: str = ""


class Key(NamedTuple):
    """A setting as the documentation shows it."""

    section: str
    name: str
    type: str
    default: str
    example: str
    meaning: str
    audits: tuple[str, ...]


KEYS: Mapping[str, KeyText] = {
    "audit": KeyText("what is audited", '"training"'),
    "name": KeyText("what the page calls it", '"Clinic, forest"', "the data and the model"),
    "about": KeyText("one sentence for `dosimeter run --list`", '"Admissions of 2025"'),
    "seed": KeyText(
        "seed of every random choice", "7", "0; where an audit flips coins, a fresh one, kept in the store"
    ),
    "data.name": KeyText("a data set that dosimeter knows; instead of file", '"digits"', "–"),
    "data.file": KeyText("your own records: .npz (X, y), .csv, .csv.gz or .parquet", '"patients.csv"', "–"),
    "data.label": KeyText("the label column of that file", '"diagnosis"', "label, y, target or class"),
    "data.records": KeyText("take only so many records, at random", "2000", "all"),
    "data.seed": KeyText("seed of that choice and of the split", "1"),
    "data.test_share": KeyText(
        "the share of records that no model is trained on", "0.25", "0.5 for model and gradients, else 0"
    ),
    "data.folder": KeyText(
        "where the files of a known data set are", '"downloads"', "the folder in DOSIMETER_DATA, or a cache"
    ),
    "data.vocabulary": KeyText("for texts: how many ids words are hashed to", "4096"),
    "data.length": KeyText(
        "for texts: how many words of each are read; with encoder or model.pretrained, how many tokens", "64"
    ),
    "data.encoder": KeyText(
        "for texts: a pre-trained transformer, a folder or a name on the Hugging Face hub, whose frozen features are "
        "the records",
        '"sentence-transformers/all-MiniLM-L6-v2"',
        "–",
    ),
    "model.network": KeyText(
        "a network: mlp, logistic, cnn, cnn-tanh-4, bag-of-embeddings or transformer (needs torch)", '"mlp"', "–"
    ),
    "model.hidden": KeyText("mlp: the widths of its layers", "[64, 32]", "[64]"),
    "model.activation": KeyText("mlp, cnn: relu or tanh", '"tanh"', '"relu"'),
    "model.channels": KeyText("cnn-tanh-4: the widths of its layers", "[8, 16, 16, 32]", "[16, 32, 32, 64]"),
    "model.dimension": KeyText("networks for texts: the width of a word", "64", "32"),
    "model.heads": KeyText("transformer: heads of attention", "4", "2"),
    "model.layers": KeyText("transformer: layers", "2", "1"),
    "model.factory": KeyText(
        'your own torch module: "module:function", a function without arguments', '"my_model:make"', "–"
    ),
    "model.command": KeyText(
        "your own script, in any language",
        '["python", "train.py", "{data}", "{indices}", "{seed}", "{outputs}"]',
        "–",
    ),
    "model.sklearn": KeyText("a scikit-learn class", '"sklearn.ensemble.RandomForestClassifier"', "–"),
    "model.pretrained": KeyText(
        "a pre-trained transformer to fine-tune on texts: a folder or a name on the Hugging Face hub; of [recipe] it "
        "takes learning_rate, epochs or steps, and batch_size",
        '"sentence-transformers/all-MiniLM-L6-v2"',
        "–",
    ),
    "model.options": KeyText("arguments of that scikit-learn class", "{ n_estimators = 100 }"),
    "recipe.optimiser": KeyText("for torch models: sgd, adam or adamw", '"adam"'),
    "recipe.learning_rate": KeyText("for torch models: the learning rate", "0.05"),
    "recipe.momentum": KeyText("for torch models: the momentum of sgd", "0.9"),
    "recipe.weight_decay": KeyText("for torch models: the weight decay", "0.0001"),
    "recipe.epochs": KeyText("for torch models: how long to train; or say steps", "20", "one of both is needed"),
    "recipe.steps": KeyText("for torch models: how many steps; or say epochs", "500", "one of both is needed"),
    "recipe.batch_size": KeyText('for torch models: records in a batch, or "all"', "64"),
    "recipe.sampling": KeyText(
        "for torch models: shuffled, or poisson, which guarantees for adding or removing a record need", '"poisson"'
    ),
    "recipe.schedule": KeyText("for torch models: constant, cosine or one-cycle", '"cosine"'),
    "recipe.precision": KeyText("for torch models: float32, float64 or bf16", '"float64"', "that of the model"),
    "recipe.dp.noise_multiplier": KeyText("DP-SGD: the noise over the clipping norm; or say epsilon", "1.1", "–"),
    "recipe.dp.epsilon": KeyText("DP-SGD: the ε that the noise is chosen for", "8.0", "–"),
    "recipe.dp.clip": KeyText("DP-SGD: the clipping norm", "0.5"),
    "recipe.dp.microbatches": KeyText(
        "DP-SGD: in how many parts a batch is divided; the mean of each is clipped", "8", "each record is clipped"
    ),
    "attack.name": KeyText(
        "how membership is guessed: loss, watson, lira, lira-offline, rmia, rmia-online, informia or informia-online; "
        "for text the score, e.g. ratio",
        '"lira"',
    ),
    "attack.signal": KeyText(
        'what is read from outputs, "module:function" (outputs, labels) -> a number for each', '"my_model:signal"', "–"
    ),
    "attack.game": KeyText('"challenge" attacks chosen records, "crossed" all of them', '"crossed"'),
    "attack.points": KeyText("which rows of the data are attacked", "[12, 80]", "those that shadow models find worst"),
    "attack.challenges": KeyText("how many rows are attacked", "4", "1"),
    "attack.select": KeyText("what makes a row the worst: accuracy or auc", '"auc"', '"accuracy"'),
    "attack.canaries": KeyText(
        "crafted records instead of those of the data: mislabelled, out-of-distribution, clip-bkd; for text their kind",
        '"mislabelled"',
        '"suffix" for text, else none',
    ),
    "attack.neighbours": KeyText("bounded (replace one record) or unbounded (remove one)", '"unbounded"'),
    "attack.distance": KeyText("how the neighbouring data set is found", '"euclidean"'),
    "attack.over": KeyText(
        "what distances are measured over: x, or xy, where records with different labels are the farthest apart",
        '"xy"',
        '"x"',
    ),
    "attack.noise": KeyText("noise scaled to global or local sensitivity; local is not DP", '"local"', '"global"'),
    "attack.generator": KeyText(
        "what makes records like the members: auto, or flow (flow matching, for images)", '"auto"'
    ),
    "attack.guesses": KeyText("how many guesses are made, or auto", "200"),
    "attack.protocol": KeyText("honest, or thesis for the best of all thresholds beside it", '"thesis"'),
    "estimate.delta": KeyText("δ", "1e-6"),
    "estimate.confidence": KeyText("the confidence of every bound", "0.99"),
    "estimate.claim": KeyText("a claimed ε that is tested while runs come in", "1.0"),
    "estimate.belief": KeyText("choose the noise so that the adversary's belief stays below this", "0.9"),
    "budget.shadows": KeyText("shadow models, which choose and calibrate the attack", "32"),
    "budget.runs": KeyText("trainings that are attacked; more prove more", "400"),
    "budget.canaries": KeyText("records whose coins are guessed", "500", "half of the records, at most 1000"),
    "budget.repetitions": KeyText("trainings that are observed", "200"),
    "budget.references": KeyText("reference models for baseline and null band", "4"),
    "budget.memory": KeyText("limit for all workers together", '"4GB"', "what is free"),
    "budget.timeout": KeyText("seconds that one task may take", "600.0", "no limit"),
    "engine.name": KeyText("inline, local, ray or ray://host:port", '"inline"'),
    "engine.workers": KeyText("processes", "2", "one for each core"),
    "engine.device": KeyText("where torch models train, e.g. cpu, cuda or cuda:1", '"cpu"', "the processor"),
    "store.folder": KeyText("where finished trainings are kept", '"audit-store"'),
    "report.html": KeyText("the page", '"audit.html"', "the file's name with .html"),
    "report.json": KeyText("the audit as JSON", '"audit.json"', "not written"),
}


@dataclass(frozen=True)
class _Field:
    """A field of the models with its place in a file."""

    path: str
    schema: Mapping[str, Any]
    default: Any


def keys() -> list[Key]:
    """Every setting, in the order of the models.

    Raises:
        KeyError: If a setting has no words here.
    """
    return [_key(found) for found in _fields(Config, "")]


def _fields(model: type[BaseModel], inside: str) -> list[_Field]:
    whole = model.model_json_schema()
    found = []
    for name, field in model.model_fields.items():
        spelled = field.alias or name
        path = f"{inside}{spelled}"
        section = next((kind for kind in _kinds(field.annotation) if _is_section(kind)), None)
        if section is not None:
            found += _fields(section, f"{path}.")
        else:
            default = field.get_default(call_default_factory=True, validated_data={})
            found.append(_Field(path, whole["properties"][spelled], default))
    return found


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return (annotation, *getattr(annotation, "__args__", ()))


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _key(field: _Field) -> Key:
    text = KEYS[field.path]
    section, _, name = field.path.rpartition(".")
    audits = tuple(kind for kind, takes in TAKES.items() if field.path in takes)
    set_in_model = _toml(field.default) if field.default not in (None, {}, "") else ""
    default = text.default or set_in_model or _stated(field.path)
    everywhere = tuple(TAKES) if not audits or field.path in HOW_TO_RUN else audits
    return Key(section, name, _type(field.schema), default or "–", text.example, text.meaning, everywhere)


def _stated(path: str) -> str:
    """What the code that takes the setting says: a recipe's field, or an argument of the audits."""
    from dosimeter.training import Recipe

    section, _, name = path.rpartition(".")
    if section == "recipe":
        found = {field.name: field.default for field in fields(Recipe)}
        return "" if found[name] is None else _toml(found[name])
    said = {kind: value for kind, value in _arguments(path).items() if value is not None}
    if len(set(map(_toml, said.values()))) == 1:
        return _toml(next(iter(said.values())))
    return ", ".join(f"{_toml(value)} ({kind})" for kind, value in said.items())


def _arguments(path: str) -> dict[str, Any]:
    """The default of the argument that a setting becomes, by kind of audit."""
    from dosimeter.pipelines.launch import ADAPTERS

    found = {}
    for kind, takes in TAKES.items():
        function: Callable[..., Any] = ADAPTERS[kind].function
        parameters = inspect.signature(function).parameters
        if path in takes and takes[path] in parameters:
            found[kind] = parameters[takes[path]].default
    return found


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with its limits."""
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(_toml(one) for one in schema["enum"])
    if "const" in schema:
        return _toml(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    names = {"integer": "whole number", "number": "number", "string": "text", "object": "table"}
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema]
    return " ".join([names.get(schema.get("type", ""), "text"), ", ".join(limits)]).strip()
