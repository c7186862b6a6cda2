"""Audits from TOML files: their reader (`config`), what is audited (`subjects`), the run (`launch`), its cost (`cost`).

`power` and `noise` answer what is asked before a run: what an audit could prove, and which noise keeps a risk.
"""
