"""Generators: members to synthetic non-members of the same form, one protocol for tables, images and texts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dosimeter.generators.checks import check_copies, copied, same_shape
from dosimeter.generators.images import PcaMixture
from dosimeter.generators.nearest import nearest_members
from dosimeter.generators.own import GeneratedFile, OwnSampler
from dosimeter.generators.protocol import Choice, Fitted, Generator, Members, choose, read_members
from dosimeter.generators.smoothed import SmoothedBootstrap
from dosimeter.generators.tabular import GaussianCopula
from dosimeter.generators.text import NGram
from dosimeter.generators.tree import TreeModel

if TYPE_CHECKING:
    from dosimeter.generators.filtered import Filtered
    from dosimeter.generators.flow import FlowMatching
    from dosimeter.generators.mst import Mst
    from dosimeter.generators.pretrained import PretrainedText
    from dosimeter.generators.transformer import CausalTransformer
    from dosimeter.generators.vae import ConvolutionalVae

__all__ = [
    "CausalTransformer",
    "Choice",
    "ConvolutionalVae",
    "Filtered",
    "Fitted",
    "FlowMatching",
    "GaussianCopula",
    "GeneratedFile",
    "Generator",
    "Members",
    "Mst",
    "NGram",
    "OwnSampler",
    "PcaMixture",
    "PretrainedText",
    "SmoothedBootstrap",
    "TreeModel",
    "check_copies",
    "choose",
    "copied",
    "nearest_members",
    "read_members",
    "same_shape",
]

_LAZY = {
    "CausalTransformer": "transformer",
    "ConvolutionalVae": "vae",
    "Filtered": "filtered",
    "FlowMatching": "flow",
    "Mst": "mst",
    "PretrainedText": "pretrained",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
