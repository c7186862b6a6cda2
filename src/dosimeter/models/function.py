"""A plain function from records to outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dosimeter.models.black_box import Batched


class Function(Batched):
    """Any callable X -> outputs of shape (n,) or (n, classes)."""

    def __init__(self, function: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def _predict(self, rows: Any) -> Any:
        return self.function(rows)
