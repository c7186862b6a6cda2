import json
import math

import pytest

from dosimeter._validate import InputError
from dosimeter.accounting import Guarantee, PrivacyRegion, region_of_privacy
from dosimeter.estimate import Estimate, Validity


def shown(low, validity=Validity.FINITE_SAMPLE, delta=1e-5, neighbours=None):
    return Estimate(low, low, math.inf, delta, 0.95, "ranked", validity, f"ε ≥ {low}", neighbours=neighbours)


def proven(epsilon, is_bound=True, delta=1e-5, neighbours="add/remove"):
    return Guarantee(epsilon, delta, "pld", neighbours, "poisson", is_bound)


def test_the_sentence():
    region = PrivacyRegion(shown(1.3), proven(8.4))
    assert str(region) == (
        "the attack proves ε ≥ 1.3 for adding or removing one record with 95 % confidence; "
        "the accountant proves ε ≤ 8.4; nothing is known in between."
    )
    assert region.warnings == ()
    assert not region.contradiction
    assert json.loads(json.dumps(region.to_dict(), allow_nan=False))["claim"] == str(region)


def test_a_contradiction_is_said():
    region = PrivacyRegion(shown(9.0), proven(8.4))
    assert region.contradiction
    assert "both cannot hold" in str(region)
    # the same numbers at different δ need not contradict each other
    assert not PrivacyRegion(shown(9.0, delta=0.0), proven(8.4)).contradiction
    assert "use one δ" in PrivacyRegion(shown(9.0, delta=0.0), proven(8.4)).warnings[0]
    assert not PrivacyRegion(shown(9.0, Validity.INSTANCE_METRIC), proven(8.4)).contradiction


def test_numbers_that_are_no_bounds_are_named():
    region = PrivacyRegion(shown(1.0, Validity.CREDIBLE), proven(8.4, is_bound=False))
    assert "credible" in str(region)
    assert "not a bound" in str(region)
    assert "nothing is known in between" not in str(region)
    assert len(region.warnings) == 2


def test_bad_ends_are_refused():
    with pytest.raises(InputError, match="lower must be an Estimate"):
        PrivacyRegion(1.0, proven(2.0))
    with pytest.raises(InputError, match="upper must be a Guarantee"):
        PrivacyRegion(shown(1.0), 2.0)


@pytest.mark.parametrize("theirs", ["add/remove", "zero-out"])
def test_other_neighbours_are_refused(theirs):
    with pytest.raises(InputError, match=f"lower is for replace neighbours and upper for {theirs} neighbours"):
        PrivacyRegion(shown(9.0, neighbours="replace"), proven(8.4, neighbours=theirs))
    assert PrivacyRegion(shown(9.0, neighbours=theirs), proven(8.4, neighbours=theirs)).contradiction
    with pytest.raises(InputError, match=r"lower\[0\] is for replace neighbours"):
        region_of_privacy([1.0], delta=1e-5, methods=("rdp",), lower=[shown(0.1, neighbours="replace")])


def test_the_picture_has_a_row_for_every_level_and_method():
    levels = [6.99, 1.06]
    region = region_of_privacy(
        levels, delta=1e-5, sample_rate=0.02, steps=5000, methods=("naive", "rdp"), lower=[shown(0.1), shown(0.5)]
    )
    rows = {(row["noise_multiplier"], row["method"]): row for row in region.rows}
    assert len(rows) == 6
    assert rows[6.99, "naive"]["epsilon"] == pytest.approx(124.99, abs=5e-3)
    assert rows[1.06, "ranked"] == {
        "noise_multiplier": 1.06,
        "method": "ranked",
        "side": "lower",
        "epsilon": 0.5,
        "is_bound": True,
    }
    json.dumps(region.to_dict(), allow_nan=False)
    with pytest.raises(InputError, match="one for each noise level"):
        region_of_privacy(levels, delta=1e-5, lower=[shown(0.1)])
    with pytest.raises(InputError, match="noise_multipliers"):
        region_of_privacy([], delta=1e-5)


def test_the_plot_is_log_log_or_says_what_to_install():
    region = region_of_privacy([2.0, 4.0], delta=1e-5, steps=3, methods=("rdp",))
    try:
        import altair  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"\.\[report\]"):
            region.plot()
        return
    spec = region.plot().to_dict()
    assert spec["encoding"]["x"]["scale"]["type"] == "log"
    assert spec["encoding"]["y"]["scale"]["type"] == "log"
