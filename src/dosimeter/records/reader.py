"""Records and labels in whatever form they come: read, checked and counted; some of them, their kind, a fingerprint."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, show

Array: TypeAlias = npt.NDArray[Any]
KINDS = ("tabular", "image", "text")
_BLOCK = 1 << 24


def fetched(value: Any) -> Any:
    """A tensor on any device as an array; anything else unchanged."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()


def count(X: Any) -> int:
    """The number of records, at least one."""
    if isinstance(X, (str, Mapping)) or not hasattr(X, "__getitem__") or getattr(X, "shape", True) == ():
        raise InputError(f"X must be an array or a list of records, got {show(X)}; pass one row for each record.")
    size = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    if size == 0:
        raise InputError("X holds no record; pass at least one.")
    return size


def take(X: Any, rows: Any) -> Any:
    """Some records in the order of `rows` (row numbers, a mask or a slice), in the form that they have.

    X is an array, a list, a sparse matrix, a table of pandas or pyarrow, a mapping of columns, or None, which stays
    None.
    """
    if X is None:
        return None
    if isinstance(X, Mapping):
        return {name: take(c if isinstance(c, list) else np.asarray(c), rows) for name, c in X.items()}
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(rows, slice):
        return X[rows]
    if hasattr(X, "column_names"):
        return X.take(np.arange(X.num_rows)[rows])
    if isinstance(X, (list, tuple)):
        return [X[i] for i in np.arange(len(X))[rows]]
    return X[rows]


def frame_numbers(frame: Any) -> npt.NDArray[np.float64]:
    """The columns of a data frame that hold numbers, NaN where one is missing."""
    numeric = frame.select_dtypes(include="number") if hasattr(frame, "select_dtypes") else frame.to_frame()
    columns = [numeric[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in numeric.columns]
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))


def missing_values(X: Any) -> int:
    """How many values of a table are missing; 0 for records of another form."""
    if hasattr(X, "iloc"):
        return int(np.asarray(X.isna()).sum())
    array = X if isinstance(X, np.ndarray) else None
    return int(np.isnan(array).sum()) if array is not None and array.dtype.kind == "f" else 0


def kind_of(X: Any, *, name: str = "members") -> str:
    """tabular, image or text, read from the form of the records."""
    if isinstance(X, str):
        raise InputError(f"{name} is one string; pass a list of texts, one for each record.")
    if hasattr(X, "toarray"):
        raise InputError(f"{name} is a sparse matrix; pass {name}.toarray().")
    if isinstance(X, Mapping) or hasattr(X, "column_names") or (hasattr(X, "iloc") and hasattr(X, "columns")):
        return "tabular"
    if isinstance(X, list) and X and isinstance(X[0], str):
        return "text"
    if getattr(X, "ndim", None) == 1 and len(X) and isinstance(X[0], str):
        return "text"
    shape = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = np.asarray(X).shape
        except (ValueError, TypeError):
            raise InputError(
                f"{name} has rows of mixed lengths, got {show(X)}; pass a table, images or texts."
            ) from None
    if len(shape) == 2:
        return "tabular"
    if len(shape) in (3, 4):
        return "image"
    raise InputError(
        f"{name} has shape {tuple(shape)}; pass a table (n, d) or named columns, images (n, h, w), (n, h, w, c) or "
        "(n, c, h, w), or a list of texts."
    )


def fingerprint(X: Any, y: Any) -> str:
    """SHA-256 of the type, shape and content of X and y, the same on every machine; y may be None."""
    digest = hashlib.sha256()
    for part in (X, y):
        for piece in _pieces(part):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(part: Any) -> Iterator[Any]:
    if part is None:
        yield b"none\n"
    elif hasattr(part, "tocsr"):
        csr = part.tocsr()
        yield f"sparse {csr.shape}\n".encode()
        yield from (piece for array in (csr.data, csr.indices, csr.indptr) for piece in _pieces(array))
    elif isinstance(part, str):
        data = part.encode("utf-8", "surrogatepass")
        yield b"%d:" % len(data) + data
    elif isinstance(part, (list, tuple)):
        yield f"list {len(part)}\n".encode()
        yield from (piece for item in part for piece in _pieces(item))
    else:
        yield from _of_array(np.asarray(fetched(part)))


def _of_array(array: Array) -> Iterator[Any]:
    if array.dtype.kind in "TU":
        yield f"text {array.shape}\n".encode()
        yield from (piece for text in array.ravel().tolist() for piece in _pieces(text))
    elif array.dtype.hasobject:
        yield f"objects {array.shape}\n".encode()
        yield repr(array.tolist()).encode("utf-8", "surrogatepass")
    else:
        portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        yield f"{portable.dtype.str} {array.shape}\n".encode()
        view = portable.reshape(-1).view(np.uint8)
        yield from (view[start : start + _BLOCK].data for start in range(0, view.size, _BLOCK))


def joined(first: Any, second: Any) -> Any:
    """Two sets of records of the same form as one."""
    if hasattr(first, "iloc"):
        return _joined_frames(first, second)
    if hasattr(first, "tocsr"):
        from scipy import sparse

        return sparse.vstack([first, second]).tocsr()
    return [*first, *second] if isinstance(first, list) else np.concatenate([first, second])


def _joined_frames(first: Any, second: Any) -> Any:
    """Two data frames as one; a column of categories stays one, also where the sides know different ones."""
    import pandas

    if not hasattr(first, "columns"):
        return pandas.concat([first, second], ignore_index=True)
    if list(first.columns) != list(second.columns):
        raise InputError("members and nonmembers have different columns; pass tables with the same columns.")
    both = pandas.concat([first, second], ignore_index=True)
    for name in first.columns:
        sides = first[name], second[name]
        if all(isinstance(side.dtype, pandas.CategoricalDtype) for side in sides) and sides[0].dtype != sides[1].dtype:
            known = sides[0].cat.categories.union(sides[1].cat.categories, sort=False)
            both[name] = pandas.Categorical(both[name], categories=known)
    return both


def array(name: str, values: Any) -> Array:
    """Any values as an array, if their lengths are alike."""
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's answer to rows of mixed lengths
        raise InputError(f"{name} holds rows of mixed lengths, got {check.show(values)}; make them alike.") from None


def numbers(name: str, values: Any) -> Array:
    """An array of finite numbers with at least one row."""
    found = array(name, values)
    if found.dtype.kind not in "biuf" or found.ndim == 0 or found.size == 0:
        raise InputError(
            f"{name} must be an array of numbers, got type {found.dtype} and shape {found.shape}; pass a row for each "
            "record, with categories as numbers."
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise InputError(f"{name} holds values that are infinite or NaN; remove or repair these records first.")
    return found


def class_numbers(name: str, values: Any, count: int) -> npt.NDArray[np.int64]:
    """Whole class numbers from 0, one for each record."""
    remedy = "number them by numpy.unique(…, return_inverse=True)[1]"
    y = array(name, values)
    if y.dtype.kind in "USO" and y.size:
        raise InputError(f"{name} must hold the classes as numbers, got {check.show(y.flat[0])}; {remedy}.")
    y = numbers(name, y)
    if y.shape != (count,):
        raise InputError(
            f"{name} must hold one label for each record, got shape {y.shape} for {count} records; pass shape "
            f"({count},)."
        )
    whole = y.astype(np.int64)
    if (wrong := (whole != y) | (whole < 0)).any():
        raise InputError(
            f"{name} must hold the classes as whole numbers from 0, got {check.show(y[wrong][0])}; {remedy}."
        )
    return whole


def class_codes(
    name: str, values: Any, count: int, names: tuple[str, ...] | None = None
) -> tuple[npt.NDArray[np.int64], tuple[str, ...] | None]:
    """Class numbers from 0 and the names that they stand for: words are numbered in the order of the alphabet.

    Without words the names are None. `names` are those of other records, which these must share.
    """
    words = array(name, values)
    if words.ndim == 2 and words.shape[1] == 1:
        words = words[:, 0]
    if words.dtype.kind not in "UTO":
        return class_numbers(name, words, count), None
    texts = labels(words, count)
    if texts.dtype.kind != "U":
        return class_numbers(name, texts, count), None
    known = tuple(np.unique(texts).tolist()) if names is None else names
    place = np.searchsorted(known, texts).clip(0, len(known) - 1)
    strange = np.asarray(known)[place] != texts
    if strange.any():
        raise InputError(
            f"{name} holds {check.show(str(texts[strange][0]))}, which is not a class of the data "
            f"({check.show(list(known), 90)}); remove these records or correct the labels."
        )
    return place.astype(np.int64), known


def targets(y: Any, records: int | None = None) -> Array:
    """What a model predicts: labels as `labels` gives them, numbers (float64), or 0 and 1 for each of several labels.

    Whole numbers are labels; what else they may be is for the model to decide.
    """
    raw = None if y is None else array("labels", fetched(y))
    if raw is not None and raw.ndim == 2 and raw.shape[1] > 1:
        return _several_labels(raw, records)
    if raw is not None and raw.dtype.kind == "f" and raw.size and np.isfinite(raw).all():
        flat = raw[:, 0] if raw.ndim == 2 else raw
        if flat.ndim == 1 and (flat != np.floor(flat)).any():
            if records is not None and flat.size != records:
                raise InputError(f"there are {flat.size} labels but {records} records; they must pair up.")
            return flat.astype(np.float64)
    return labels(y, records)


def _several_labels(raw: Array, records: int | None) -> Array:
    if records is not None and len(raw) != records:
        raise InputError(f"there are {len(raw)} rows of labels but {records} records; they must pair up.")
    if raw.dtype.kind not in "biuf" or not np.isin(raw, (0, 1)).all():
        raise InputError(
            f"labels have shape {raw.shape}; pass one label for each record, or 0 and 1 for each of several labels."
        )
    if (raw.sum(axis=1) == 1).all():
        raise InputError(
            f"labels have shape {raw.shape} with a single 1 in each row, not one column per class; pass one label for "
            "each record: y.argmax(axis=1)."
        )
    return raw.astype(np.int64)


def labels(y: Any, records: int | None = None) -> Array:
    """Labels as a flat array of whole numbers (int64) or strings."""
    if y is None:
        raise InputError("labels are missing; pass y with one label for each record.")
    try:
        raw = np.asarray(fetched(y))
    except (ValueError, TypeError, OverflowError):
        raise InputError("labels have rows of mixed lengths; pass one label for each record.") from None
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise InputError(f"labels have shape {raw.shape}; pass one label for each record, not one column per class.")
    if records is not None and raw.size != records:
        raise InputError(f"there are {raw.size} labels but {records} records; they must pair up.")
    if raw.dtype.kind == "O":
        if all(isinstance(value, str) for value in raw):
            return raw.astype(str)
        try:
            raw = raw.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError("labels mix types or hold empty cells; use whole numbers, or strings alone.") from None
    if raw.dtype.kind in "UT":
        return raw.astype(str)
    array = check.finite_array("labels", raw)
    good = (array == np.floor(array)) & (np.abs(array) < 2.0**62)
    if not good.all():
        index = int(np.argmin(good))
        raise InputError(f"labels[{index}] is {array[index]:g}; labels must be whole numbers or strings.")
    return raw.astype(np.int64)


def dataset(data: Any, *, label: str | None = None, any_target: bool = False) -> tuple[Any, Any]:
    """Read records X and labels y, and check them.

    A value of a table may be missing (NaN), since some models take that; none may be infinite.

    Args:
        data: A pair (X, y); the path of an .npz (arrays X and y, x and y, or features and labels), .csv or .parquet
            file (numeric columns and a label column); or a torch `Dataset` of pairs or a `DataLoader` of one, whose
            records come in the order of the dataset. For language models, which need no
            labels, a list of texts, a list of rows of token numbers, a tokenizer's output, or a pair (X, None).
        label: The label column of a table; by default the one called label, y, target or class.
        any_target: Whether y may also hold any numbers, or 0 and 1 for each of several labels.

    Returns:
        X and y; y is None where there are no labels.

    Raises:
        InputError: If there are no records, a value is infinite, or records and labels do not pair up.

    >>> X, y = dataset(([[0.0, 1.0], [2.0, 3.0]], ["no", "yes"]))
    >>> X.shape, y.tolist()
    ((2, 2), ['no', 'yes'])
    """
    from dosimeter.records import sources  # which stands on this file

    if _is_torch(data, "DataLoader"):
        data = sources.unwrapped(data)
    if isinstance(data, (str, os.PathLike)):
        X, y = sources.from_file(data, label)
    elif label is not None:
        raise InputError(f"label names a column of a .csv or .parquet file, got {show(label)}; leave it out.")
    elif _is_texts(data):
        X, y = list(data), None
    elif _is_tokens(data):
        X, y = data, None
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        X, y = data
    elif not isinstance(data, (tuple, list, np.ndarray, Mapping)) and _is_indexed(data):
        X, y = sources.from_items(data)
    else:
        raise InputError(
            "data must be a pair (X, y), the path of an .npz, .csv or .parquet file, or a torch dataset, got "
            f"{show(data)}; pass one of these."
        )
    X = _records(X)
    return X, None if y is None else (targets if any_target else labels)(y, count(X))


def _is_texts(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "UT" and X.ndim == 1
    return isinstance(X, list) and bool(X) and all(isinstance(text, str) for text in X)


def _is_tokens(data: Any) -> bool:
    """A tokenizer's output, or a list of flat rows of whole numbers, which no pair (X, y) is."""
    if isinstance(data, Mapping):
        return "input_ids" in data
    try:
        rows = [np.asarray(fetched(row)) for row in data] if isinstance(data, list) else []
    except (ValueError, TypeError, OverflowError):
        return False
    return bool(rows) and all(row.ndim == 1 and row.size and row.dtype.kind in "iu" for row in rows)


def _records(X: Any) -> Any:
    """X as it is, refused when a number in it is infinite, or missing where records are not rows of a table."""
    from dosimeter.records import sources

    X = sources.unmasked(X) if isinstance(X, Mapping) else fetched(X)
    if _is_texts(X):
        return [str(text) for text in X]
    if hasattr(X, "iloc"):
        _refuse_infinite(~np.isinf(frame_numbers(X)))
        return X
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        if not np.isfinite(X.data).all():
            raise InputError("X has values that are not finite; remove or repair these records first.")
        return X
    try:
        array = np.asarray(X)
    except (ValueError, TypeError, OverflowError):
        return sources.ragged(X)
    if array.dtype.kind == "O":
        return sources.ragged(X)
    if array.ndim < 2 or 0 in array.shape:
        raise InputError(f"X has shape {array.shape}; pass an array with one row for each record, at least one.")
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got type {array.dtype}; encode words as numbers first.")
    if array.dtype.kind == "f":
        _refuse_infinite(~np.isinf(array) if array.ndim == 2 else np.isfinite(array))
    return array


def _refuse_infinite(good: Array) -> None:
    bad = ~good.reshape(good.shape[0], -1).all(axis=1)
    if bad.any():
        raise InputError(
            f"X[{int(np.argmax(bad))}] has a value that is not finite ({int(bad.sum())} of {bad.size} records); "
            "remove or repair these records first."
        )


def parted(name: str, data: Any, remedy: str = "pass X or (X, y)") -> tuple[Any, Any]:
    """X and y of a tuple (X, y) or a torch dataset, or X and None of anything else."""
    data = torch_pair(data)
    if not isinstance(data, tuple):
        return data, None
    if len(data) != 2:
        raise InputError(f"{name} as a tuple must be (X, y), got {len(data)} parts; {remedy}.")
    return data


def pair(name: str, data: Any, remedy: str) -> tuple[Any, Any]:
    """X and y of a pair (X, y), of a `Dataset` of this package, or of a torch `Dataset` or `DataLoader`."""
    found = torch_pair(getattr(data, "pair", data))
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise InputError(f"{name} must be a pair (X, y), got {show(data)}; {remedy}.")
    return found[0], found[1]


def torch_pair(data: Any) -> Any:
    """(X, y) of a torch `Dataset` or `DataLoader`; anything else as it is."""
    if not _is_torch(data, "Dataset", "DataLoader"):
        return data
    from dosimeter.records import sources

    held = sources.unwrapped(data)
    if not _is_indexed(held):
        raise InputError(f"{type(held).__name__} has no rows that can be read by number; pass arrays (X, y).")
    X, y = sources.from_items(held)
    return fetched(X), fetched(y)


def _is_torch(data: Any, *kinds: str) -> bool:
    """Whether this is of these kinds of data in torch, which need not be installed."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(data, tuple(getattr(torch.utils.data, kind) for kind in kinds))


def _is_indexed(data: Any) -> bool:
    """Whether records can be read one by one, by their number."""
    if _is_torch(data, "IterableDataset"):
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "shape")
