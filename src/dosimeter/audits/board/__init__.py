"""Many audits on one page: a folder → what each audit proves and guarantees, over time, and who keeps the limits."""

from dosimeter.audits.board.read import Board, DamagedFile, Entry, Limits, board

__all__ = ["Board", "DamagedFile", "Entry", "Limits", "board"]
