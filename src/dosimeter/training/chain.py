"""What kind of network a module is: read from the module and its trace, nothing is run."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from dosimeter._validate import require

WEIGHED = ("linear", "convolution")  # the steps that have parameters


@dataclass(frozen=True)
class Layer:
    """A linear layer by its name in the module, and the activation that follows it."""

    name: str
    inputs: int
    outputs: int
    bias: bool
    activation: str | None


def torch_module() -> Any:
    """The torch package, or the name of the extra that brings it."""
    return require("torch", extra="torch", caller="dosimeter.training")


@dataclass(frozen=True)
class Link:
    """One step of a plain chain: its kind, the submodule's name if it is one, and the node that calls it."""

    kind: str
    name: str
    node: Any


def links(module: Any) -> list[Link] | str:
    """What a module does with its one input, step by step, or why it is not a plain chain of known steps."""
    torch = torch_module()
    try:
        graph = torch.fx.Tracer().trace(module)
    except Exception as error:  # a module may do anything in its forward
        return f"its forward cannot be traced ({type(error).__name__})"
    found: list[Link] = []
    previous = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if previous is not None:
                return "it takes more than one input"
            previous = node
            continue
        if node.op == "output":
            if node.args[0] is not previous:
                return "its output is not its last layer"
            break
        if _shape_only(node, previous):
            continue
        kind = _kind(node, module, torch.nn, torch)
        if kind is None or not node.args or node.args[0] is not previous:
            return f"it has {_called(node, module)}, which is not part of a plain chain of dense layers"
        name = node.target if node.op == "call_module" else ""
        if kind in WEIGHED and any(link.name == name for link in found):
            return "a layer is used twice"
        found.append(Link(kind, name, node))
        previous = node
    weights = [module.get_submodule(link.name) for link in found if link.kind in WEIGHED]
    if len(list(module.parameters())) != sum(1 + (part.bias is not None) for part in weights):
        return "it has parameters outside its linear layers"
    return found


def chain(module: Any) -> list[Layer] | str:
    """The layers of a dense network in the order they are used, or why the module is not one."""
    nn = torch_module().nn
    if type(module) is nn.Linear:
        return [Layer("", module.in_features, module.out_features, module.bias is not None, None)]
    found = links(module)
    if isinstance(found, str):
        return found
    layers: list[Layer] = []
    for link in found:
        if link.kind == "linear":
            part = module.get_submodule(link.name)
            layers.append(Layer(link.name, part.in_features, part.out_features, part.bias is not None, None))
        elif link.kind in ("convolution", "pool", "norm"):
            return f"it has {_called(link.node, module)}, which is not part of a plain chain of dense layers"
        elif link.kind == "flatten":
            if layers:
                return "it flattens between layers"
        elif link.kind != "same":
            if not layers or layers[-1].activation is not None:
                return f"its {link.kind} does not follow a linear layer"
            last = layers.pop()
            layers.append(Layer(last.name, last.inputs, last.outputs, last.bias, link.kind))
    if not layers:
        return "it has no linear layer"
    if layers[-1].activation is not None:
        return "its last layer has an activation"
    return layers


def obstacle(module: Any) -> str | None:
    """Why a module must be trained by its own loop, or None."""
    nn = torch_module().nn
    for part in module.modules():
        if getattr(part, "p", 0) and isinstance(part, (nn.modules.dropout._DropoutNd, nn.RReLU)):
            return f"{type(part).__name__} draws at random in its forward"
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            return "it has hooks"
    if any(not parameter.requires_grad for parameter in module.parameters()):
        return "some of its parameters are frozen"
    if len({parameter.dtype for parameter in module.parameters()}) > 1:
        return "its parameters have more than one type"
    if next(module.buffers(), None) is not None:
        return "it has buffers that its forward may change"
    return None


def mixes_records(module: Any) -> str | None:
    """The layer that makes one record's gradient depend on the others of its batch, or None."""
    nn = torch_module().nn
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return type(part).__name__
    return None


def _kind(node: Any, module: Any, nn: Any, torch: Any) -> str | None:
    if node.op == "call_module":
        part = module.get_submodule(node.target)
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) != (1, -1):
            return None
        if type(part) is nn.Dropout:
            return "same" if part.p == 0 else None
        if type(part) is nn.GroupNorm:
            return None if part.affine else "norm"
        names = {nn.Linear: "linear", nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
        others = {nn.Flatten: "flatten", nn.Identity: "same", nn.Conv2d: "convolution", nn.MaxPool2d: "pool"}
        return {**names, **others}.get(type(part))
    if node.op == "call_function":
        functions = {torch.relu: "relu", nn.functional.relu: "relu", torch.tanh: "tanh", torch.sigmoid: "sigmoid"}
        if node.target in (torch.max_pool2d, nn.functional.max_pool2d):
            return "pool"
        if node.target is torch.flatten:
            return "flatten" if _from_the_first(node) else None
        return functions.get(node.target)
    if node.op == "call_method":
        if node.target == "flatten":
            return "flatten" if _from_the_first(node) else None
        if node.target in ("view", "reshape"):
            return "flatten" if len(node.args) == 3 and node.args[2] == -1 else None
        return node.target if node.target in ("relu", "tanh", "sigmoid") else None
    return None


def _from_the_first(node: Any) -> bool:
    start = node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", 0)
    end = node.args[2] if len(node.args) > 2 else node.kwargs.get("end_dim", -1)
    return start == 1 and end == -1


def _shape_only(node: Any, previous: Any) -> bool:
    """x.size(0), x.shape, x.shape[0] as arguments of x.view(…, -1)."""
    if node.op == "call_method" and node.target == "size":
        return bool(node.args[1:] == (0,))
    if node.op == "call_function" and node.target is getattr and node.args[1] == "shape":
        return True
    if node.op == "call_function" and node.target is operator.getitem:
        source = node.args[0]
        return bool(node.args[1] == 0 and source.op == "call_function" and source.target is getattr)
    return False


def _called(node: Any, module: Any) -> str:
    if node.op == "call_module":
        return type(module.get_submodule(node.target)).__name__
    return str(getattr(node.target, "__name__", node.target))
