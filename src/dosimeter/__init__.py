"""dosimeter: how much privacy has a machine-learning model really cost the people in its training data?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dosimeter._validate import InputError

if TYPE_CHECKING:
    from dosimeter.accounting import (
        Composition,
        DpSgd,
        Gaussian,
        Guarantee,
        PrivacyRegion,
        account,
        noise_for_advantage,
        noise_for_belief,
        noise_for_epsilon,
        noise_for_tpr,
    )
    from dosimeter.accounting.claims import claim
    from dosimeter.audits.compare import compare
    from dosimeter.audits.gradients import audit_gradients
    from dosimeter.audits.gradients.opacus_hook import OpacusTranscript
    from dosimeter.audits.members_only import audit_members_only
    from dosimeter.audits.model import audit_model
    from dosimeter.audits.one_run import audit_one_run
    from dosimeter.audits.result import Audit
    from dosimeter.audits.scores import audit_scores
    from dosimeter.audits.shift.guard import check_shift
    from dosimeter.audits.synthetic import audit_synthetic
    from dosimeter.audits.text import CanarySheet, audit_canaries, canary_sheet
    from dosimeter.audits.text.callback import DosimeterCallback
    from dosimeter.audits.training import audit_training
    from dosimeter.engine import RunOptions, Store
    from dosimeter.estimate import Estimate, Validity
    from dosimeter.estimators.claim import ClaimTest
    from dosimeter.estimators.epsilon_star import epsilon_star, epsilon_star_mechanism
    from dosimeter.estimators.goodness_of_fit import goodness_of_fit
    from dosimeter.estimators.lower_bound import lower_bound
    from dosimeter.estimators.one_run import one_run
    from dosimeter.estimators.panoramia import panoramia
    from dosimeter.estimators.propensity import propensity_bound
    from dosimeter.estimators.propensity_run import PropensityRun
    from dosimeter.estimators.ranked import ranked
    from dosimeter.estimators.rates import advantage, clopper_pearson, jeffreys
    from dosimeter.estimators.with_assumptions import bayesian, gaussian
    from dosimeter.evidence import Counts, OneRun, Scores, fair_coins, fresh_seed, mask_hash
    from dosimeter.training import Privacy, Recipe

__version__ = "0.1.0"  # the only place; pyproject.toml and the command line read it here

# Imported when they are asked for: a worker process or a command needs few of them.
_LATER = {
    "Audit": "dosimeter.audits.result",
    "CanarySheet": "dosimeter.audits.text.sheet",
    "ClaimTest": "dosimeter.estimators.claim",
    "Composition": "dosimeter.accounting",
    "Counts": "dosimeter.evidence",
    "DosimeterCallback": "dosimeter.audits.text.callback",
    "DpSgd": "dosimeter.accounting",
    "Estimate": "dosimeter.estimate",
    "Gaussian": "dosimeter.accounting",
    "Guarantee": "dosimeter.accounting",
    "OneRun": "dosimeter.evidence",
    "OpacusTranscript": "dosimeter.audits.gradients.opacus_hook",
    "Privacy": "dosimeter.training.recipe",
    "PrivacyRegion": "dosimeter.accounting",
    "PropensityRun": "dosimeter.estimators.propensity_run",
    "Recipe": "dosimeter.training.recipe",
    "RunOptions": "dosimeter.engine.options",
    "Scores": "dosimeter.evidence",
    "Store": "dosimeter.engine.store",
    "Validity": "dosimeter.estimate",
    "account": "dosimeter.accounting",
    "advantage": "dosimeter.estimators.rates",
    "audit_canaries": "dosimeter.audits.text.run",
    "audit_gradients": "dosimeter.audits.gradients.run",
    "audit_members_only": "dosimeter.audits.members_only.run",
    "audit_model": "dosimeter.audits.model.run",
    "audit_one_run": "dosimeter.audits.one_run.run",
    "audit_scores": "dosimeter.audits.scores.run",
    "audit_synthetic": "dosimeter.audits.synthetic.run",
    "audit_training": "dosimeter.audits.training.run",
    "bayesian": "dosimeter.estimators.with_assumptions",
    "canary_sheet": "dosimeter.audits.text.sheet",
    "check_shift": "dosimeter.audits.shift.guard",
    "claim": "dosimeter.accounting.claims",
    "clopper_pearson": "dosimeter.estimators.rates",
    "compare": "dosimeter.audits.compare.run",
    "epsilon_star": "dosimeter.estimators.epsilon_star",
    "epsilon_star_mechanism": "dosimeter.estimators.epsilon_star",
    "fair_coins": "dosimeter.evidence",
    "fresh_seed": "dosimeter.evidence",
    "gaussian": "dosimeter.estimators.with_assumptions",
    "goodness_of_fit": "dosimeter.estimators.goodness_of_fit",
    "jeffreys": "dosimeter.estimators.rates",
    "lower_bound": "dosimeter.estimators.lower_bound",
    "mask_hash": "dosimeter.evidence",
    "noise_for_advantage": "dosimeter.accounting",
    "noise_for_belief": "dosimeter.accounting",
    "noise_for_epsilon": "dosimeter.accounting",
    "noise_for_tpr": "dosimeter.accounting",
    "one_run": "dosimeter.estimators.one_run",
    "panoramia": "dosimeter.estimators.panoramia",
    "propensity_bound": "dosimeter.estimators.propensity",
    "ranked": "dosimeter.estimators.ranked",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'dosimeter' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value  # so that it is looked up once
    return value


def __dir__() -> list[str]:
    """Name what is public, for tab completion."""
    return [*__all__, "__version__"]


__all__ = [
    "Audit",
    "CanarySheet",
    "ClaimTest",
    "Composition",
    "Counts",
    "DosimeterCallback",
    "DpSgd",
    "Estimate",
    "Gaussian",
    "Guarantee",
    "InputError",
    "OneRun",
    "OpacusTranscript",
    "Privacy",
    "PrivacyRegion",
    "PropensityRun",
    "Recipe",
    "RunOptions",
    "Scores",
    "Store",
    "Validity",
    "account",
    "advantage",
    "audit_canaries",
    "audit_gradients",
    "audit_members_only",
    "audit_model",
    "audit_one_run",
    "audit_scores",
    "audit_synthetic",
    "audit_training",
    "bayesian",
    "canary_sheet",
    "check_shift",
    "claim",
    "clopper_pearson",
    "compare",
    "epsilon_star",
    "epsilon_star_mechanism",
    "fair_coins",
    "fresh_seed",
    "gaussian",
    "goodness_of_fit",
    "jeffreys",
    "lower_bound",
    "mask_hash",
    "noise_for_advantage",
    "noise_for_belief",
    "noise_for_epsilon",
    "noise_for_tpr",
    "one_run",
    "panoramia",
    "propensity_bound",
    "ranked",
]
