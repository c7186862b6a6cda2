"""The page of an audit, for a person to read: what every kind shows, and where a kind adds its own.

`charts` gives Vega-Lite specifications, `to_html` one self-contained page; `write_html`, `write_pdf` and `write_png`
write the page, the same page for printing, and the charts. All need the extra `report`.

In the order of the page: `write` has the first screen and puts everything together, `evidence` the counts and the ROC
curve, `people` what it means for them, `appendix` what experts look up. `facts` are the values that they share.
"""

from dosimeter.audits.page.write import charts, to_html, write_html, write_pdf, write_png

__all__ = ["charts", "to_html", "write_html", "write_pdf", "write_png"]
