"""A page of every kind, each from an audit that its function made, for the tests that look at pages in a browser."""

from __future__ import annotations

from functools import cache

import numpy as np
import samples
import test_gradients_page
import test_members_only_page
import test_training_page

from dosimeter.audits import page as audit_page
from dosimeter.audits.compare.page import compare_page
from dosimeter.audits.one_run import audit_one_run
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.training import audit_training
from dosimeter.evidence import Scores


@cache
def nothing() -> Audit:
    """Scores that tell nothing."""
    rng = np.random.default_rng(5)
    return audit_scores(Scores(rng.normal(size=200), rng.normal(size=200)), resamples=0)


def _trained(**options: object) -> Audit:
    made = test_training_page
    return audit_training(made.train, made.DATA, shadows=24, **options, **made.COMMON)


MAKERS = {
    "full": samples.full,
    "bare": samples.bare,
    "hostile": samples.hostile,
    "shifted": samples.shifted,
    "broken": lambda: samples.full(8.0, guard=False),
    "none": nothing,
    "training": lambda: _trained(runs=80, claim=(2.0, 1e-5)),
    "several": lambda: _trained(runs=30, challenges=6),
    "one-run": lambda: audit_one_run(
        test_training_page.train, test_training_page.DATA, count=test_training_page.RECORDS, **test_training_page.COMMON
    ),
    "gradients": test_gradients_page.simulated,
    "members-only": test_members_only_page.audit,
}
NAMES = [*MAKERS, "compared"]


@cache
def page_of(name: str) -> str:
    """The page of a kind."""
    if name == "compared":
        audits = [samples.bare(1.0), samples.full(), samples.shifted()]
        return compare_page(audits, ["plain", "with noise", samples.HOSTILE], [0.9, 0.8, 0.7])
    return audit_page.to_html(MAKERS[name]())
