"""How close generated images come to members; a generator that copies them is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import InputError
from dosimeter.audits.members_only.result import (
    NearestMembers,
)

CLOSE = 0.95  # the correlation above which an image is close to a member
COPIES = 0.85  # of the way from real images to copies, at which a generator is refused
COMPARED = 500  # images of either kind that are compared with all members


def close_to_members(members: Any, generated: Any, *, given: bool) -> NearestMembers:
    """Compare generated images with members, all as (n, h, w, c); refuse a generator that copies them.

    How close members come to each other says what is usual. Records that were `given` are refused as well: they are
    not non-members either.
    """
    from dosimeter.generators.nearest import best_correlations

    own = np.arange(min(COMPARED, len(members)))
    real = best_correlations(members, members[own], own=own)
    made = best_correlations(members, generated[:COMPARED])
    middle = float(np.median(real)), float(np.median(made))
    closeness = float(np.clip((middle[1] - middle[0]) / max(1.0 - middle[0], 1e-9), 0.0, 1.0))
    if closeness > COPIES:
        source = "generated" if given else "generator"
        raise InputError(
            f"{source}: the generated images are nearly copies of members (median correlation with the nearest "
            f"{middle[1]:.3g}, of members with other members {middle[0]:.3g}), so they are not non-members; use a "
            "generator that keeps less of its training images."
        )
    shares = [float(np.mean(values > CLOSE)) for values in (made, real)]
    return NearestMembers(middle[1], middle[0], shares[0], shares[1], closeness)
