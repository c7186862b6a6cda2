"""The headline bound: learn how the scores leak from the middle ranks, then test all records outside once.

Two forms, both functions of pooled ranks alone. Nothing is drawn, nothing is discarded, ties count as groups:
`coins` for labels thrown by independent fair coins, `pools` for a random split into pools of fixed sizes.
The proofs are in docs/headline.md.
"""

from dosimeter.estimators.headline.coins import coins_bound
from dosimeter.estimators.headline.pools import pools_bound
from dosimeter.estimators.headline.ranks import Bins, Proof, rank_bins, wanted_edges

VERSION = 6  # raised whenever the same bins give another bound; files without a number are of version 1

__all__ = ["VERSION", "Bins", "Proof", "coins_bound", "pools_bound", "rank_bins", "wanted_edges"]
