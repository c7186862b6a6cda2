import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian, account, exact, pld, rdp, zcdp


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noise_multiplier": 0.0}, ("noise_multiplier", "got 0")),
        ({"noise_multiplier": -1.0}, ("noise_multiplier", "-1")),
        ({"noise_multiplier": math.nan}, ("noise_multiplier", "nan")),
        ({"noise_multiplier": math.inf}, ("noise_multiplier", "inf")),
        ({"noise_multiplier": "1"}, ("noise_multiplier", "'1'")),
        ({"sample_rate": 0.0}, ("sample_rate", "(0, 1]")),
        ({"sample_rate": 1.5}, ("sample_rate", "1.5")),
        ({"steps": 0}, ("steps", "between 1 and", "got 0")),
        ({"steps": 2.5}, ("steps", "whole", "2.5")),
        ({"steps": True}, ("steps", "True")),
        ({"sampling": "random"}, ("sampling", "poisson", "'random'")),
        ({"neighbours": "both"}, ("neighbours", "replace", "'both'")),
        ({"delta": 0.0}, ("delta", "above 0")),
        ({"delta": 1.0}, ("delta", "(0, 1)", "got 1")),
        ({"delta": -1e-5}, ("delta",)),
        ({"methods": ["prv"]}, ("methods", "pld", "'prv'")),
        ({"methods": ["gaussian"]}, ("methods", "'gaussian'")),
    ],
)
def test_bad_input_is_one_sentence(arguments, words):
    settings = {"noise_multiplier": 1.0, "sample_rate": 0.02, "steps": 10, "delta": 1e-5} | arguments
    with pytest.raises(InputError) as caught:
        account(**settings)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert message.endswith(".")


def test_nothing_or_too_much_given():
    with pytest.raises(InputError, match="noise_multiplier is missing"):
        account(delta=1e-5)
    with pytest.raises(InputError, match="both given"):
        account(Gaussian(1.0), delta=1e-5, noise_multiplier=1.0)
    with pytest.raises(InputError, match="mechanism must be"):
        account("dp-sgd", delta=1e-5)
    with pytest.raises(InputError, match="empty"):
        Composition(())
    with pytest.raises(InputError, match=r"parts\[1\]"):
        Composition((Gaussian(1.0), 3))
    with pytest.raises(InputError, match="different neighbours"):
        Composition((Gaussian(1.0), Gaussian(1.0, neighbours="replace")))


@pytest.mark.parametrize(
    ("sampling", "neighbours"),
    [("without-replacement", "add/remove"), ("without-replacement", "zero-out"), ("shuffled", "add/remove")],
)
def test_what_no_accountant_can_bound_is_refused(sampling, neighbours):
    with pytest.raises(InputError, match="cannot be bounded"):
        DpSgd(1.0, 0.02, 100, sampling, neighbours)


def test_accountants_refuse_what_they_cannot_bound():
    with pytest.raises(InputError, match="pld cannot bound"):
        pld(DpSgd(1.0, 0.02, 100, "without-replacement"), delta=1e-5)
    with pytest.raises(InputError, match="rdp cannot bound"):
        rdp(DpSgd(1.0, 0.02, 100, "poisson", "replace"), delta=1e-5)
    with pytest.raises(InputError, match="gaussian cannot bound"):
        exact(DpSgd(1.0, 0.02, 100), delta=1e-5)


def test_neighbours_follow_the_sampling_unless_given():
    assert DpSgd(1.0, 0.1, 10).neighbours == "add/remove"
    assert DpSgd(1.0, 0.1, 10, "without-replacement").neighbours == "replace"
    assert DpSgd(1.0, 0.1, 10, "shuffled").neighbours == "zero-out"


def test_replacing_doubles_the_sensitivity():
    assert Gaussian(6.0, 9, "replace").mu == pytest.approx(2 * Gaussian(6.0, 9).mu)
    replaced = exact(Gaussian(6.0, 9, "replace"), delta=1e-5).epsilon
    assert replaced == exact(Gaussian(3.0, 9), delta=1e-5).epsilon


@given(st.integers(1, 400), st.integers(1, 2000), st.integers(1, 5000))
def test_no_record_is_visited_more_often_than_counted(batch, records, steps):
    batch = min(batch, records)
    run = DpSgd(1.0, batch / records, steps, "shuffled")
    fewest_batches = max(1, records // batch)  # the last, smaller batch dropped
    assert run.visits == math.ceil(steps / fewest_batches)


def test_shuffled_batches_are_one_gaussian_with_a_step_for_each_pass():
    run = DpSgd(7.0, 0.02, 5000, "shuffled")
    assert run.visits == 100
    values = {result.method: result for result in account(run, delta=1e-5)}
    assert values["pld"].epsilon == exact(Gaussian(7.0, 100), delta=1e-5).epsilon
    as_if = values["pld-as-if-poisson"]
    assert as_if.epsilon == pld(DpSgd(7.0, 0.02, 5000), delta=1e-5).epsilon
    assert not as_if.is_bound
    assert as_if.epsilon < values["pld"].epsilon / 5


def test_phases_compose_to_the_same_as_one_run():
    whole = DpSgd(1.3, 0.01, 1000)
    parts = (DpSgd(1.3, 0.01, 400), DpSgd(1.3, 0.01, 600))
    for one, many in zip(account(whole, delta=1e-6), account(list(parts), delta=1e-6), strict=False):
        if one.method == many.method:
            assert many.epsilon == pytest.approx(one.epsilon, rel=1e-12)


def test_phases_with_different_noise_lie_between():
    mixed = (DpSgd(1.0, 0.01, 500), DpSgd(2.0, 0.01, 500))
    low, high = DpSgd(2.0, 0.01, 1000), DpSgd(1.0, 0.01, 1000)
    for method in ("naive", "advanced", "advanced-exact", "zcdp", "rdp", "pld", "gdp-clt"):
        one, two, three = (account(run, delta=1e-5, methods=[method])[0].epsilon for run in (low, mixed, high))
        assert one < two < three, method


def test_different_full_batch_phases_are_one_gaussian():
    mixed = Composition((Gaussian(3.0, 4), Gaussian(5.0, 9), Gaussian(1.0)))
    alone = Gaussian(1 / math.sqrt(4 / 9 + 9 / 25 + 1))
    assert exact(mixed, delta=1e-5).epsilon == pytest.approx(exact(alone, delta=1e-5).epsilon, rel=1e-13)
    assert zcdp(mixed, delta=1e-5).epsilon == pytest.approx(zcdp(alone, delta=1e-5).epsilon, rel=1e-12)


def test_guarantees_read_back_and_speak():
    from dosimeter.accounting import Guarantee

    for result in account(noise_multiplier=0.44, sample_rate=0.02, steps=5000, delta=1e-5):
        assert Guarantee.from_dict(result.to_dict()) == result
        assert ("proves" in str(result)) == result.is_bound
        assert ("not a proven bound" in str(result)) != result.is_bound
    vacuous = Guarantee(math.inf, 1e-5, "naive", "add/remove", "poisson", True)
    assert vacuous.to_dict()["epsilon"] is None
    assert Guarantee.from_dict(vacuous.to_dict()).epsilon == math.inf
    with pytest.raises(ArithmeticError):
        Guarantee(math.nan, 1e-5, "naive", "add/remove", "poisson", True)
