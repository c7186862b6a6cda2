"""Does an audit's every number follow from the evidence that it carries?

An audit holds the counts that its bounds were computed from. `verify` computes the bounds again from them, without the
scores and without the model, and with the scores also the counts. It finds numbers that were changed, forgotten or
computed by other rules. It cannot find a forger who invents counts: only the data, or a signature of somebody who is
trusted (`dosimeter.audits.sign`), can.

    finding.py   what is found, and the two ways in which a number does not follow
    evidence.py  the evidence that estimates carry, typed
    ranks.py     bounds from bins of ranks and from walks
    rates.py     bounds from counts at a threshold
    guesses.py   bounds from guesses about coins: fixed in advance, bets, claims
    measured.py  measurements: PANORAMIA, sensitivities, the advantage of an adversary
    methods.py   method → how it is recomputed
    curve.py     the ROC curve, the coins and the counts beside the bins
    data.py      the evidence itself, from the scores
    run.py       verify
"""

from dosimeter.audits.verify.finding import Finding, Standing, Verification
from dosimeter.audits.verify.run import verify

__all__ = ["Finding", "Standing", "Verification", "verify"]
