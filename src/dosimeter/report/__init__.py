"""Charts and pages: what an audit found, for a person to read.

`charts` gives Vega-Lite specifications, `to_html` one self-contained page, `write_png` the charts as pictures,
`compare_page` several audits side by side. All need the extra `report`.
"""

from dosimeter.report.charts import charts
from dosimeter.report.compare import compare_page
from dosimeter.report.page import to_html, write_html, write_png

__all__ = ["charts", "compare_page", "to_html", "write_html", "write_png"]
