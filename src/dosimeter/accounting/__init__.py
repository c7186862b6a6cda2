"""Upper bounds: a mechanism as a value, accountants as functions of it, and the noise that a target needs."""

from dosimeter.accounting.accountants import account, noise_for_epsilon
from dosimeter.accounting.calibration import noise_for_advantage, noise_for_belief, noise_for_tpr
from dosimeter.accounting.composition import advanced, naive
from dosimeter.accounting.gdp import gdp_clt
from dosimeter.accounting.mechanism import Composition, DpSgd, Gaussian, Guarantee, Neighbours, Sampling
from dosimeter.accounting.pld import exact, pld
from dosimeter.accounting.profile import privacy_profile
from dosimeter.accounting.rdp import DEFAULT_ORDERS, PAPER_ORDERS, rdp
from dosimeter.accounting.region import NoiseSweep, PrivacyRegion, region_of_privacy
from dosimeter.accounting.zcdp import zcdp

__all__ = [
    "DEFAULT_ORDERS",
    "PAPER_ORDERS",
    "Composition",
    "DpSgd",
    "Gaussian",
    "Guarantee",
    "Neighbours",
    "NoiseSweep",
    "PrivacyRegion",
    "Sampling",
    "account",
    "advanced",
    "exact",
    "gdp_clt",
    "naive",
    "noise_for_advantage",
    "noise_for_belief",
    "noise_for_epsilon",
    "noise_for_tpr",
    "pld",
    "privacy_profile",
    "rdp",
    "region_of_privacy",
    "zcdp",
]
