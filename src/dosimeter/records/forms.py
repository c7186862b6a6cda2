"""Records in whatever form they come: how many, which kind, some of them, and a fingerprint of all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show

Array: TypeAlias = npt.NDArray[Any]
KINDS = ("tabular", "image", "text")
_BLOCK = 1 << 24


def fetched(value: Any) -> Any:
    """A tensor as an array, from whatever device; anything else as it is."""
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
