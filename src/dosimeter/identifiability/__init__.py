"""What an ε means for a person: belief, advantage, TPR at an FPR, PPV at a prior, reconstruction, and sentences.

One (ε, δ) pair says much less than the curve δ(ε) it was read from: at a low FPR the difference is tenfold. All
formulas take numbers or arrays.
"""

from dosimeter.identifiability.conversions import (
    advantage_from_rdp,
    epsilon_from_advantage,
    epsilon_from_belief,
    mu_from_advantage,
)
from dosimeter.identifiability.meaning import (
    ADVANTAGES,
    advantage,
    advantage_from_epsilon,
    advantage_from_mu,
    belief_from_epsilon,
    ppv,
    reconstruction_bound,
    risk_from_epsilon,
    risk_in_words,
    tpr_at_fpr,
)

__all__ = [
    "ADVANTAGES",
    "advantage",
    "advantage_from_epsilon",
    "advantage_from_mu",
    "advantage_from_rdp",
    "belief_from_epsilon",
    "epsilon_from_advantage",
    "epsilon_from_belief",
    "mu_from_advantage",
    "ppv",
    "reconstruction_bound",
    "risk_from_epsilon",
    "risk_in_words",
    "tpr_at_fpr",
]
