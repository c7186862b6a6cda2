"""What a headline test has proven, with the counts that it rests on."""

from __future__ import annotations

from typing import NamedTuple


class Proof(NamedTuple):
    """The largest rejected ε, and what was counted among the records that were tested.

    `upper` records had the highest scores and `upper_members` of them were members; `lower` records had the lowest
    scores and `lower_members` of them were members. `learned` records between them taught the test its weights.
    """

    epsilon: float
    upper: int
    upper_members: int
    lower: int
    lower_members: int
    learned: int
    allowance: int

    @property
    def tested(self) -> int:
        return self.upper + self.lower

    @property
    def right(self) -> int:
        """Right guesses among the tested records: "member" above, "non-member" below."""
        return self.upper_members + self.lower - self.lower_members


def nothing(records: int) -> Proof:
    """The proof of ε ≥ 0: nothing was tested."""
    return Proof(0.0, 0, 0, 0, 0, records, 0)
