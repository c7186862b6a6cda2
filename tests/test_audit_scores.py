import json
import math

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.accounting import account
from dosimeter.audits.assemble import numbers, roc
from dosimeter.audits.result import Audit
from dosimeter.audits.scores.run import audit_scores
from dosimeter.audits.shift.guard import Guard
from dosimeter.estimate import plain
from dosimeter.estimators.limits import tpr_limit
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.rates import advantage, clopper_pearson
from dosimeter.estimators.with_assumptions import bayesian, gaussian
from dosimeter.evidence import Scores


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    return Scores(rng.normal(1, 1, 400), rng.normal(0, 1, 300))


@pytest.fixture(scope="module")
def losses():
    rng = np.random.default_rng(1)
    return Scores.from_losses(rng.gamma(2, 5, 300), rng.gamma(3, 5, 300))


class TestEstimates:
    def test_each_is_what_its_own_function_says(self, scores):
        audit = audit_scores(scores, delta=1e-5, confidence=0.9, seed=4)
        at = {"delta": 1e-5, "confidence": 0.9}
        heads = [lower_bound(scores, neighbours=relation, **at) for relation in ("replace", "add/remove")]
        rates = [f(scores, seed=4, **at) for f in (clopper_pearson, bayesian, gaussian, advantage)]
        assert [e.to_dict() for e in audit.estimates] == [e.to_dict() for e in (*heads, *rates)]

    def test_losses_add_epsilon_star_in_both_forms(self, losses):
        methods = [e.method for e in audit_scores(losses, resamples=20).estimates]
        assert methods[-2:] == ["epsilon-star-parametric", "epsilon-star-empirical"]

    def test_scores_have_no_epsilon_star(self, scores):
        assert not any("star" in e.method for e in audit_scores(scores).estimates)

    def test_delta_zero_leaves_out_what_cannot_take_it(self, losses):
        audit = audit_scores(losses, delta=0, resamples=0)
        methods = [e.method for e in audit.estimates]
        assert "gaussian" not in methods
        assert "epsilon-star-parametric" not in methods
        assert "epsilon-star-empirical" in methods
        assert any("infinite at delta = 0" in w for w in audit.metadata["warnings"])

    @pytest.mark.parametrize(
        "options", [{"threshold": "naive"}, {"threshold": 0.5}, {"threshold": "split"}, {"fpr": 0.1}]
    )
    def test_a_threshold_rule_reaches_every_estimator_but_the_headline(self, scores, options):
        audit = audit_scores(scores, delta=1e-5, **options)
        alone = [f(scores, delta=1e-5, **options) for f in (clopper_pearson, bayesian, gaussian, advantage)]
        assert [e.to_dict() for e in audit.estimates[2:]] == [e.to_dict() for e in alone]
        assert audit.headline == lower_bound(scores, delta=1e-5)

    def test_uniform_is_for_those_that_have_a_band(self, scores):
        named, default = audit_scores(scores, threshold="uniform"), audit_scores(scores)
        assert [e.to_dict() for e in named.estimates] == [e.to_dict() for e in default.estimates]

    def test_one_member_and_one_nonmember(self):
        audit = audit_scores(Scores.from_losses([0.0], [1.0]), delta=1e-5)
        assert audit.headline.low == 0
        assert "bayesian" not in [e.method for e in audit.estimates]
        assert any("bayesian left out" in w for w in audit.metadata["warnings"])
        json.loads(audit.to_json())

    def test_everything_tied(self):
        audit = audit_scores(Scores.from_losses(np.zeros(50), np.zeros(50)), delta=1e-5, resamples=10)
        assert all(e.low == 0 for e in audit.estimates if e.method != "bayesian")  # a posterior is never 0 at a tiny δ
        assert audit.curve["auc"] == 0.5

    @pytest.mark.parametrize(
        "options",
        [
            {"delta": 1},
            {"confidence": 95},
            {"seed": -1},
            {"resamples": -1},
            {"resamples": 10**9},
            {"threshold": "best"},
            {"threshold": np.array([0.1, 0.2])},
            {"fpr": 2},
            {"threshold": 0.5, "fpr": 0.1},
        ],
    )
    def test_refuses(self, losses, options):
        with pytest.raises(InputError):
            audit_scores(losses, **options)

    def test_refuses_what_are_no_scores(self):
        with pytest.raises(InputError, match=r"^scores must be Scores or OneRun, got list"):
            audit_scores([1, 2, 3])


class TestCurve:
    def test_every_point_of_a_small_curve(self, scores):
        curve = roc(scores, 0.95)
        points = scores.curve
        assert curve.threshold == numbers(points.thresholds)
        assert curve["fpr"] == pytest.approx(points.fp / 300)
        assert curve["tpr"] == pytest.approx(points.tp / 400)
        assert curve["auc"] == scores.auc

    def test_the_band_lies_beside_the_curve(self, scores):
        curve = roc(scores, 0.95)
        fpr, tpr, high, low = (np.array(v) for v in (curve.fpr, curve.tpr, curve.fpr_high, curve.tpr_low))
        assert np.all(high >= fpr)
        assert np.all(low <= tpr)
        assert np.all((high <= 1) & (low >= 0))

    def test_the_band_holds_the_truth_at_all_thresholds_at_once(self):
        from scipy.special import ndtr

        rng = np.random.default_rng(5)
        missed = 0
        for _ in range(200):
            curve = roc(Scores(rng.normal(1, 1, 100), rng.normal(0, 1, 100)), 0.8)
            t = np.array([np.inf if value is None else value for value in curve.threshold])
            high, low = np.array(curve.fpr_high), np.array(curve.tpr_low)
            missed += bool(np.any(ndtr(-t) > high) or np.any(ndtr(1 - t) < low))
        assert missed <= 60  # 200 · 20 % plus 3.5 standard deviations

    def test_a_large_curve_is_thinned_but_keeps_its_ends_and_its_start(self):
        rng = np.random.default_rng(0)
        large = Scores(rng.normal(1, 1, 100_000), rng.normal(0, 1, 100_000))
        curve = roc(large, 0.95)
        fpr, tpr = np.array(curve.fpr), np.array(curve.tpr)
        assert 400 <= fpr.size <= 1300
        assert (fpr[-1], tpr[-1]) == (1.0, 1.0)
        assert np.all(np.diff(fpr) >= 0)
        assert np.all(np.diff(tpr) >= 0)
        assert np.sum((fpr > 0) & (fpr < 1e-3)) > 50
        assert np.trapezoid(tpr, fpr) == pytest.approx(large.auc, abs=1e-4)

    def test_tpr_at_low_fprs(self, scores):
        points = roc(scores, 0.95).tpr_at_fpr
        assert [p.fpr for p in points] == [0.001, 0.01, 0.1]
        for point in points:
            false = np.sum(scores.nonmembers >= point.threshold)
            true = np.sum(scores.members >= point.threshold)
            assert false <= point.fpr * 300
            assert point.tpr == true / 400
            limit = tpr_limit(scores, point.fpr, 0.95)
            assert (point.tpr_low, point.limit_threshold) == (limit.tpr, plain(limit.threshold))


class TestAudit:
    def test_json_there_and_back(self, losses):
        audit = audit_scores(losses, resamples=20)
        values = json.loads(audit.to_json())
        assert values == audit.to_dict()
        again = Audit.from_json(audit.to_json())
        assert again.to_dict() == audit.to_dict()
        assert again.headline == audit.headline

    def test_with_an_upper_bound(self, scores):
        base = audit_scores(scores)
        upper = tuple(account(noise_multiplier=1.0, delta=1e-5, methods=["gaussian"]))
        audit = Audit(base.estimates, base.guard, base.risk, base.curve, upper)
        again = Audit.from_json(audit.to_json())
        assert again.upper[0].epsilon == pytest.approx(4.377178, abs=1e-6)

    @pytest.mark.parametrize("text", ["", "{}", "[]", "null", "3", '"x"', '{"schema": 1}', '{"schema": 99}', "{", "\0"])
    def test_refuses_other_json(self, text):
        with pytest.raises(InputError):
            Audit.from_json(text)

    def test_refuses_broken_parts(self, scores):
        values = audit_scores(scores).to_dict()
        for name in ("schema", "estimates", "guard", "upper", "risk", "curve", "metadata"):
            for bad in (None, 3, [3], "x"):
                with pytest.raises(InputError):
                    Audit.from_json(json.dumps(values | {name: bad}))
        with pytest.raises(InputError, match="bad estimates"):
            Audit.from_json(json.dumps(values | {"estimates": []}))

    @pytest.mark.parametrize("text", [None, 3, b"\xff", object()])
    def test_refuses_what_is_no_text(self, text):
        with pytest.raises(InputError):
            Audit.from_json(text)

    def test_prints_for_people(self, scores):
        audit = audit_scores(scores)
        text = str(audit)
        assert text.startswith(audit.headline.claim)
        assert "Not checked" in text
        assert all(e.claim in text for e in audit.estimates)

    def test_risk_speaks_of_the_headline(self, scores):
        audit = audit_scores(scores, delta=1e-5)
        assert audit.risk["would_allow"]["epsilon"] == audit.headline.low
        assert audit.risk["would_allow"]["belief"][1]["belief"] == pytest.approx(
            1 / (1 + math.exp(-audit.headline.low))
        )
        assert f"{audit.headline.low:.4g}" in audit.risk["words"][0]

    def test_metadata(self, scores):
        metadata = audit_scores(scores, seed=3).metadata
        assert (metadata["members"], metadata["nonmembers"], metadata["seed"]) == (400, 300, 3)

    def test_frozen(self, scores):
        audit = audit_scores(scores)
        with pytest.raises(AttributeError):
            audit.guard = None
        with pytest.raises(TypeError):
            audit.risk["epsilon"] = 0

    def test_guard(self):
        assert "cannot be told from leakage" in str(Guard(shift=False, checked=False))
        assert "differ even without the model" in str(Guard(shift=True, checked=True))
        assert "No shift" in str(Guard(shift=False, checked=True))


def test_the_mechanism_is_written_as_it_would_be_typed() -> None:
    import numpy as np

    from dosimeter import Composition, DpSgd, Gaussian, audit_model

    X, y = np.arange(80.0)[:, None], np.ones(80, int)

    def model(rows):
        p = 0.3 + 0.4 * (np.asarray(rows)[:, 0] % 2)
        return np.c_[1 - p, p]

    poisson = "DpSgd(noise_multiplier=1.1, sample_rate=0.01, steps=10, sampling='poisson', neighbours='add/remove')"
    composed = "Composition(parts=(Gaussian(noise_multiplier=1.0, steps=1, neighbours='add/remove'),))"
    for mechanism, told in ((DpSgd(1.1, 0.01, 10), poisson), (Composition((Gaussian(1.0),)), composed)):
        audit = audit_model(
            model,
            members=(X[:40], y[:40]),
            nonmembers=(X[40:], y[40:]),
            guard=False,
            resamples=0,
            mechanism=mechanism,
        )
        assert audit.metadata.mechanism == told and "<" not in audit.to_json().split('"mechanism"')[1][:200]
