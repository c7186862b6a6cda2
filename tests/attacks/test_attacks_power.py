"""Simulated Gaussian signals with a known best attack: in ~ N(level + μ, 1), out ~ N(level, 1)."""

import numpy as np
import pytest
from scipy import stats

from dosimeter import Scores
from dosimeter.attacks import leave_one_out, lira, loss, rmia, watson

MU, RECORDS = 1.5, 20_000
BEST = stats.norm.cdf(MU / 2**0.5)  # .856, the AUC of the exact likelihood ratio
ERROR = 3 * 0.5 / RECORDS**0.5  # above three standard errors of an AUC of 10 000 + 10 000 records


def drawn(models, seed=0, scatter=0.0):
    rng = np.random.default_rng(seed)
    included = rng.permuted(np.repeat(np.arange(models) % 2 == 0, RECORDS).reshape(models, RECORDS), axis=0)
    level, scale = rng.normal(0, 3, RECORDS), np.exp(scatter * rng.standard_normal(RECORDS))
    member = rng.random(RECORDS) < 0.5
    shadows = level + scale * (rng.standard_normal((models, RECORDS)) + MU * included)
    target = level + scale * (rng.standard_normal(RECORDS) + MU * member)
    return (target, shadows, included), member


def curve(scores, member):
    """AUC, and TPR at 1 % FPR."""
    inside, outside = scores[member], scores[~member]
    return Scores(inside, outside).auc, (inside > np.quantile(outside, 0.99)).mean()


@pytest.mark.parametrize("variance", ["global", "bayesian", "record"])
def test_lira_approaches_the_exact_ratio(variance):
    found = {models: curve(lira(*(e := drawn(models))[0], variance=variance), e[1])[0] for models in (8, 32, 128)}
    assert found[8] < found[32] < found[128] <= BEST + ERROR
    assert found[128] > BEST - 0.012


def test_watson_and_offline_lira_reach_the_ratio_when_scales_are_equal():
    evidence, member = drawn(64)
    exact = stats.norm.cdf(MU / (2 * (1 + 1 / 32)) ** 0.5)  # the mean of 32 models adds its own scatter
    for scores in (watson(*evidence), lira(*evidence, mode="offline", variance="global")):
        assert curve(scores, member)[0] == pytest.approx(exact, abs=ERROR)


def test_bayesian_beats_record_variance_with_four_and_four_models():
    for scatter in (0.0, 0.5):
        evidence, member = drawn(8, scatter=scatter)
        own, shrunk = (curve(lira(*evidence, variance=v), member) for v in ("record", "bayesian"))
        assert shrunk[0] > own[0] + 0.03
        assert shrunk[1] > 1.5 * own[1]


def test_bayesian_beats_global_where_scales_differ_and_matches_it_where_they_do_not():
    for scatter, better in ((0.8, 0.01), (0.0, -0.005)):
        evidence, member = drawn(32, scatter=scatter)
        common, shrunk = (curve(lira(*evidence, variance=v), member)[0] for v in ("global", "bayesian"))
        assert shrunk > common + better


def test_rmia_gains_with_one_model_without_each_record():
    evidence, member = drawn(2)
    assert curve(rmia(*evidence), member)[0] > curve(loss(evidence[0]), member)[0] + 0.05


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_real_models_leak_more_to_calibrated_attacks():
    """Overfitted softmax regressions on digits of which a fifth are mislabelled."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x, y = x[:400] / 16, y[:400].copy()
    y[:80] = (y[:80] + rng.integers(1, 10, 80)) % 10
    included = rng.permuted(np.repeat(np.arange(18) % 2 == 0, 400).reshape(18, 400), axis=0)
    outputs = np.empty((18, 400))
    for model, rows in enumerate(included):
        p = LogisticRegression(C=100.0, max_iter=60).fit(x[rows], y[rows]).predict_log_proba(x)
        others = np.where(np.arange(10) == y[:, None], -np.inf, p)
        outputs[model] = p[np.arange(400), y] - np.logaddexp.reduce(others, axis=1)
    found = {
        name: Scores((s := leave_one_out(name, outputs, included))[included], s[~included]).auc
        for name in ("loss", "watson", "rmia", "lira")
    }
    assert found["loss"] > 0.6
    for name in ("watson", "rmia", "lira"):
        assert found[name] > found["loss"] + 0.05


def test_nothing_is_found_where_nothing_leaks():
    (target, shadows, included), _ = drawn(16)
    rng = np.random.default_rng(1)
    blind = rng.random(RECORDS) < 0.5
    for scores in (lira(target, shadows, included), rmia(target, shadows, included), watson(target, shadows, included)):
        assert abs(curve(scores, blind)[0] - 0.5) < 4.5 * (1 / 12 * 4 / RECORDS) ** 0.5
