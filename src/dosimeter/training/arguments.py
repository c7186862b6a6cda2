"""The arguments of `train_many`, checked before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, InputError
from dosimeter.records import array, class_numbers, numbers, pair, parted
from dosimeter.training.asking import Observed, observed
from dosimeter.training.chain import chain, torch_module
from dosimeter.training.devices import generator
from dosimeter.training.draws import checked_augmentation
from dosimeter.training.neighbour import Neighbour
from dosimeter.training.recipe import Augment, Recipe


def records(data: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Features (n, …) and labels (n,) from 0."""
    features, classes = pair("data", data, "pass arrays of features and labels")
    x = numbers("X", features)
    return x, class_numbers("y", classes, len(x))


def checked(
    data: Any, given: Any, numbers: Any, how: Any, neighbour: Neighbour | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], BoolArray, list[int]]:
    """Features, labels, memberships and seeds, all of which fit together and suit the recipe."""
    x, y = records(data)
    members = memberships(given, len(x))
    each = seeds(numbers, len(members))
    watched(neighbour, recipe(how), len(x), members)
    how.rates(how.length(int(members.sum(axis=1).min())))  # refuses a schedule that is too short
    return x, y, members, each


def suited(
    template: Any, recipe: Recipe, x: npt.NDArray[Any], y: npt.NDArray[np.int64], asked: Any
) -> tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
    """Features in the type that the model takes, and what it is asked about."""
    x = cast(x, template)
    questions = evaluation(asked.records if isinstance(asked, Observed) else asked, x, y, template)
    outputs(template, x, y)
    if isinstance(asked, Observed):
        if "asked_y" not in questions:
            raise InputError("a function that is given the model needs labels; pass Observed(function, (X, y)).")
        observed(asked.function, template, questions["asked"][:2], questions["asked_y"][:2])
    if recipe.augment is not None:
        augmentation(recipe.augment, x)
    return x, questions


def augmentation(augment: Augment, x: npt.NDArray[Any]) -> None:
    """Refuse an augmentation that fails on the first records, or makes something else of them."""
    try:
        checked_augmentation(augment, torch_module().from_numpy(x[:2].copy()), generator("cpu", 0))
    except InputError:
        raise
    except Exception as error:  # the function is the caller's
        raise InputError(
            f"augment raised {type(error).__name__} for records of shape {x[:2].shape} "
            f"({check.show(str(error), 120)}); repair it."
        ) from None


def recipe(value: Any) -> Recipe:
    """A recipe, and nothing else."""
    if not isinstance(value, Recipe):
        raise InputError(f"recipe must be a Recipe, got {check.show(value)}; pass e.g. Recipe(epochs=10).")
    return value


def memberships(values: Any, count: int) -> BoolArray:
    """(models, records) of bools; every model has a member."""
    given = array("memberships", values)
    if given.ndim != 2 or given.shape[1] != count or not len(given) or given.dtype.kind not in "biu":
        raise InputError(
            f"memberships must be bools of shape (models, {count}), got type {given.dtype} and shape {given.shape}; "
            "pass a row for each model."
        )
    chosen = given.astype(bool)
    if (given != chosen).any():
        other = check.show(given[given != chosen][0])
        raise InputError(f"memberships must hold only False and True, got {other}; a record is a member or it is not.")
    empty = np.flatnonzero(~chosen.any(axis=1))
    if empty.size:
        raise InputError(f"memberships[{empty[0]}] has no members; give every model at least one record.")
    return chosen


def seeds(values: Any, models: int) -> list[int]:
    """One non-negative whole seed for each model."""
    shape = array("seeds", values).shape
    if shape != (models,):
        raise InputError(
            f"seeds must be one seed for each of the {models} models, got shape {shape}; pass e.g. range({models})."
        )
    return [check.seed(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def cast(x: npt.NDArray[Any], template: Any) -> npt.NDArray[Any]:
    """Features in the type of the parameters; int32 and int64 stay for models that look them up."""
    torch = torch_module()
    looks_up = any(isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)) for part in template.modules())
    if x.dtype.kind in "iu" and looks_up and not isinstance(chain(template), list):
        return np.ascontiguousarray(x, np.int64)
    wanted = torch.empty(0, dtype=next(template.parameters()).dtype).numpy().dtype
    return np.ascontiguousarray(x, wanted)


def evaluation(asked: Any, x: npt.NDArray[Any], y: npt.NDArray[np.int64], template: Any) -> dict[str, npt.NDArray[Any]]:
    """The records that every trained model is asked about, and their labels where known."""
    if asked is None:
        return {}
    if isinstance(asked, str):
        if asked != "data":
            raise InputError(
                f'evaluate_on must be "data", records or (records, labels), got {check.show(asked)}; pass one of these.'
            )
        return {"asked": x, "asked_y": y}
    given, truth = parted("evaluate_on", asked, "pass records or (records, labels)")
    rows = cast(numbers("evaluate_on", given), template)
    if rows.shape[1:] != x.shape[1:]:
        raise InputError(
            f"evaluate_on has records of shape {rows.shape[1:]}, the data of {x.shape[1:]}; pass the same."
        )
    return (
        {"asked": rows} if truth is None else {"asked": rows, "asked_y": class_numbers("evaluate_on", truth, len(rows))}
    )


def outputs(template: Any, x: npt.NDArray[Any], y: npt.NDArray[np.int64]) -> None:
    """Refuse data that the model cannot take, and labels that it has no output for."""
    torch = torch_module()
    mode = template.training
    try:
        with torch.no_grad():
            found = template.eval()(torch.from_numpy(x[:2].copy()))
    except Exception as error:  # the forward is the user's
        raise InputError(
            f"the model cannot take records of shape {x.shape[1:]} ({check.show(str(error), 120)}); reshape the data "
            "or change the model."
        ) from None
    finally:
        template.train(mode)
    shape = tuple(getattr(found, "shape", ()))
    if not shape or shape[0] != len(x[:2]) or len(shape) > 2:
        raise InputError(
            f"the model must give logits of shape (records, classes), got {shape} for {len(x[:2])} records; end it "
            "with one output for each class."
        )
    classes = 2 if len(shape) == 1 or shape[1] == 1 else shape[1]
    if int(y.max()) >= classes:
        raise InputError(
            f"y holds class {int(y.max())}, but the model has outputs for {classes} classes, from 0; give it more "
            "outputs or number the classes anew."
        )


def watched(neighbour: Neighbour | None, recipe: Recipe, count: int, members: BoolArray) -> None:
    """A transcript needs DP-SGD, rows that exist and models trained on D or D'; noise of local scale needs it."""
    if neighbour is None:
        if recipe.dp is not None and recipe.dp.sensitivity == "local":
            raise InputError("sensitivity='local' scales the noise to two data sets; pass neighbour=Neighbour(…).")
        return
    if not isinstance(neighbour, Neighbour):
        raise InputError(f"neighbour must be a Neighbour, got {check.show(neighbour)}; pass Neighbour(removed=0).")
    if recipe.dp is None:
        raise InputError("neighbour needs a recipe with DP-SGD; pass Recipe(dp=Privacy(…), …).")
    if recipe.augment is not None or recipe.dp.microbatches is not None:
        what = "augment" if recipe.augment is not None else "microbatches"
        raise InputError(f"neighbour watches the gradients of single records as they are; leave {what} out of it.")
    rows = [row for row in (neighbour.removed, neighbour.added) if row is not None]
    for row in rows:
        if row >= count:
            raise InputError(f"neighbour names row {row}, but the data have {count} records; rows count from 0.")
    if len(rows) == 2:
        neither = np.flatnonzero(members[:, rows].sum(axis=1) != 1)
        if neither.size:
            both = "both" if members[neither[0], rows[0]] else "neither"
            raise InputError(
                f"memberships[{neither[0]}] holds {both} of the removed row {rows[0]} and the added row {rows[1]}, so "
                "it is neither D nor D'; give each model one of them."
            )
