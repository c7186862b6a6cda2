"""Texts, tokenizers and models from files on this machine; nothing is fetched and nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dosimeter._validate import InputError, require, show
from dosimeter.audits.text.subject import read_model
from dosimeter.reading import read_text, strict_json

__all__ = ["TextRows", "load_model", "load_tokenizer", "read_jsonl", "text_lines"]

_CALLER = "dosimeter.audits.text"


@dataclass(frozen=True)
class TextRows:
    """Texts of a file, and the person behind each where a field names one."""

    texts: list[str]
    groups: list[str] | None = None


def read_jsonl(path: Path, field: str = "text", group: str | None = None) -> TextRows:
    """Read texts from JSON lines, or from the lines of a .txt file.

    Raises:
        InputError: If a line is not an object with the field, or a text is empty.
    """
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    if path.suffix.lower() == ".txt":
        if group is not None:
            raise InputError(f"{path} has lines of text and no field {show(group)}; pass a .jsonl file.")
        return TextRows(lines)
    texts, groups = [], []
    for number, line in enumerate(lines, start=1):
        row = strict_json(line, what=f"line {number} of {path}")
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            raise InputError(f"line {number} of {path} has no text in the field {show(field)}; name it with --field.")
        texts.append(row[field])
        if group is not None:
            if row.get(group) is None:
                raise InputError(f"line {number} of {path} has no field {show(group)}; every text needs its person.")
            groups.append(str(row[group]))
    return TextRows(texts, groups if group is not None else None)


def text_lines(texts: Sequence[str], field: str = "text") -> str:
    """Texts as JSON lines."""
    return "".join(json.dumps({field: text}, ensure_ascii=False) + "\n" for text in texts)


def load_tokenizer(folder: Path, other: Path | None = None) -> Any:
    """The tokenizer in a folder, else in the other one."""
    transformers: Any = require("transformers", extra="text", caller=_CALLER)
    for place in (folder, other):
        if place is not None and place.is_dir() and any(place.glob("tokenizer*")):
            return _load(
                lambda p: transformers.AutoTokenizer.from_pretrained(p, local_files_only=True), place, "tokenizer"
            )
    raise InputError(f"{folder} is not a folder with a tokenizer; save it there with tokenizer.save_pretrained.")


def load_model(folder: Path, base: Path | None = None) -> Any:
    """The causal model in a folder; an adapter is put on the model in `base`.

    Raises:
        InputError: If there is none, or it is of another kind.
    """
    transformers: Any = require("transformers", extra="text", caller=_CALLER)
    options = {"local_files_only": True, "use_safetensors": True}
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; save the model there with model.save_pretrained.")
    if (folder / "adapter_config.json").exists():
        if base is None:
            raise InputError(f"{folder} holds an adapter alone; pass the folder of its base model with --base.")
        peft: Any = require("peft", extra="text", caller=_CALLER)
        inner = load_model(base)
        return _load(lambda p: peft.PeftModel.from_pretrained(inner, p, local_files_only=True), folder, "adapter")
    config = _load(lambda p: transformers.AutoConfig.from_pretrained(p, local_files_only=True), folder, "configuration")
    names = getattr(config, "architectures", None) or []
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{folder} holds a {names[0] if names else 'model'} that turns one sequence into another; canaries are for "
            "causal language models."
        )
    if any(other in name for name in names for other in ("MaskedLM", "Classification", "QuestionAnswering")):
        raise InputError(
            f"{folder} holds a {names[0]}, which is not a causal language model; save one there, or audit a classifier "
            "with audit_model."
        )
    model = _load(lambda p: transformers.AutoModelForCausalLM.from_pretrained(p, **options), folder, "model")
    return read_model("model", model)


def _load(read: Any, folder: Path, what: str) -> Any:
    try:
        return read(str(folder))
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"the {what} in {folder} cannot be read ({show(said, 160)}); save it with save_pretrained."
        ) from None
