"""What every chart needs: Altair, a width, the data by name, and the invisible layer of hover points."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dosimeter._optional import require
from dosimeter.report.theme import PHONE, config

Spec: TypeAlias = dict[str, Any]  # Vega-Lite
Rows: TypeAlias = list[dict[str, Any]]


@dataclass
class Canvas:
    """One chart in the making. Data is kept aside by name: Altair would otherwise check every row of it."""

    width: int
    alt: Any = field(default_factory=lambda: require("altair", extra="report", caller="dosimeter.report"))
    rows: dict[str, Rows] = field(default_factory=dict)

    @property
    def phone(self) -> bool:
        return self.width <= PHONE

    def chart(self, rows: Rows, **properties: Any) -> Any:
        """A chart of these rows."""
        name = f"data{len(self.rows)}"
        self.rows[name] = rows
        return self.alt.Chart(self.alt.NamedData(name=name), **properties)

    def hover(self, rows: Rows, x: Any, y: Any) -> Any:
        """The invisible layer of places and texts; rows have the fields of x and y, and `text`."""
        tooltip = self.alt.Tooltip("text:N", title="value")
        points = self.chart(rows, name="hover").mark_point(opacity=0, size=60)
        return points.encode(x=x, y=y, tooltip=tooltip, description="text:N")

    def finish(self, chart: Any, height: int | None = None) -> Spec:
        """The specification with data and style; with a height, its width is that of the whole picture."""
        if height is not None:
            autosize = {"type": "fit-x", "contains": "padding"}
            chart = chart.properties(width=self.width, height=height, autosize=autosize)
        spec: Spec = chart.to_dict(validate=False)
        spec["datasets"] = self.rows
        spec["config"] = config()
        return spec


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`, both powers of ten; every second or third where there are many."""
    first, last = round(math.log10(low)), round(math.log10(high))
    step = 1 + (last - first) // 7
    return [10.0**k for k in range(last, first - 1, -step)][::-1]
