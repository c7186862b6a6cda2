"""The page of an audit, for a person to read: what every kind shows, and where a kind adds its own.

`charts` gives Vega-Lite specifications, `to_html` one self-contained page; `write_html` and `write_png` write the page
and the charts. All need the extra `report`.
"""

from dosimeter.audits.page.charts import charts
from dosimeter.audits.page.write import to_html, write_html, write_png

__all__ = ["charts", "to_html", "write_html", "write_png"]
