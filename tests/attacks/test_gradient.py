"""The DP adversary against Gaussian likelihoods computed another way, its law, and its refusals."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import InputError
from dosimeter.attacks import gradient
from dosimeter.attacks.gradient import Transcripts, advantage_limits, log_odds_from_gradients
from dosimeter.training.neighbour import Transcript


def logs(seed, runs=6, steps=4, dims=3, scale=1.0):
    """Gradient logs with different noise at every step, in both worlds."""
    rng = np.random.default_rng(seed)
    on_d, on_d_prime = rng.normal(0, scale, (2, runs, steps, dims))
    sigma = rng.uniform(0.5, 3, (runs, steps))
    world = np.arange(runs) % 2 == 0
    noise = rng.standard_normal((runs, steps, dims)) * sigma[..., None]
    return on_d, on_d_prime, np.where(world[:, None, None], on_d, on_d_prime) + noise, sigma, world


def watched(seed=0, runs=4, steps=5):
    """Arrays as a transcript has them."""
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0.1, 2, (runs, steps))
    sigma = rng.uniform(1, 4, (runs, steps))
    return distances, rng.standard_normal((runs, steps)) * distances * sigma, sigma, rng.random(runs) < 0.5


def test_log_odds_are_differences_of_gaussian_log_likelihoods():
    on_d, on_d_prime, noisy, sigma, world = logs(0)
    with mpmath.workdps(40):
        expected = np.zeros(sigma.shape)
        for run in range(sigma.shape[0]):
            total = mpmath.mpf(0)
            for step in range(sigma.shape[1]):
                for g, a, b in zip(noisy[run, step], on_d[run, step], on_d_prime[run, step], strict=True):
                    s = mpmath.mpf(float(sigma[run, step]))
                    pdf = [mpmath.npdf(mpmath.mpf(float(g)), mpmath.mpf(float(mean)), s) for mean in (a, b)]
                    total += mpmath.log(pdf[0]) - mpmath.log(pdf[1])
                expected[run, step] = float(total)
    seen = Transcripts.from_gradients(on_d, on_d_prime, noisy, deviations=sigma, trained_on_d=world)
    np.testing.assert_allclose(seen.log_odds, expected, rtol=1e-11, atol=1e-12)
    blind = log_odds_from_gradients(on_d, on_d_prime, noisy, deviations=sigma)
    np.testing.assert_allclose(blind, expected, rtol=1e-11, atol=1e-12)


def test_large_logs_agree_with_scipy_and_do_not_depend_on_the_blocks(monkeypatch):
    on_d, on_d_prime, noisy, sigma, world = logs(1, runs=9, steps=3, dims=200)
    each = stats.norm(on_d, sigma[..., None]).logpdf(noisy) - stats.norm(on_d_prime, sigma[..., None]).logpdf(noisy)
    expected = each.sum(axis=2).cumsum(axis=1)
    whole = Transcripts.from_gradients(on_d, on_d_prime, noisy, deviations=sigma, trained_on_d=world)
    np.testing.assert_allclose(whole.log_odds, expected, rtol=1e-9)
    monkeypatch.setattr(gradient, "_AT_ONCE", 1300)
    parts = Transcripts.from_gradients(on_d, on_d_prime, noisy, deviations=sigma, trained_on_d=world)
    np.testing.assert_array_equal(parts.log_odds, whole.log_odds)
    np.testing.assert_allclose(log_odds_from_gradients(on_d, on_d_prime, noisy, deviations=sigma), expected, rtol=1e-9)


def test_beliefs_guesses_and_wins():
    sigma = np.ones((4, 1))
    distances = np.array([[2.0], [2.0], [2.0], [0.0]])
    seen = Transcripts(distances, [[0.0], [0.0], [-4.0], [0.0]], sigma, [True, False, True, True])
    np.testing.assert_allclose(seen.final, [2.0, -2.0, -2.0, 0.0])
    np.testing.assert_allclose(
        seen.beliefs[:, -1], [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(2)), 1 / (1 + np.exp(2)), 0.5]
    )
    np.testing.assert_array_equal(seen.guesses, [1, 0, 0, 0.5])
    np.testing.assert_array_equal(seen.wins, [1, 1, 0, 0.5])
    np.testing.assert_allclose(seen.information, [4, 4, 4, 0])
    assert (seen.repetitions, seen.steps) == (4, 1)
    scores = seen.scores()
    np.testing.assert_allclose(scores.members, [2, -2, 0])
    np.testing.assert_allclose(scores.nonmembers, [-2])


def test_a_step_without_difference_adds_nothing_even_without_noise():
    seen = Transcripts([[1.0, 0.0, 1.0]], [[0.5, 0.0, 0.5]], [[2.0, 0.0, 2.0]], [True])
    np.testing.assert_allclose(seen.log_odds, [[0.25, 0.25, 0.5]])


def test_certain_beliefs_keep_their_log_odds():
    seen = Transcripts([[100.0], [101.0]], [[0.0], [0.0]], 1.0, [True, True])
    assert seen.beliefs[0, 0] == seen.beliefs[1, 0] == 1
    np.testing.assert_allclose(seen.final, [5000, 5100.5])


def test_one_deviation_stands_for_all_steps_and_one_row_for_all_runs():
    distances, projections, _, world = watched()
    by_number = Transcripts(distances, projections, 2.0, world)
    by_row = Transcripts(distances, projections, np.full(5, 2.0), world)
    np.testing.assert_array_equal(by_number.log_odds, by_row.log_odds)
    np.testing.assert_array_equal(by_number.deviations, np.full((4, 5), 2.0))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_swapping_the_worlds_turns_the_sign_and_units_do_not_matter(seed, unit):
    on_d, on_d_prime, noisy, sigma, _ = logs(seed)
    here = log_odds_from_gradients(on_d, on_d_prime, noisy, deviations=sigma)
    there = log_odds_from_gradients(on_d_prime, on_d, noisy, deviations=sigma)
    np.testing.assert_allclose(here, -there, rtol=1e-9, atol=1e-9)
    scaled = log_odds_from_gradients(unit * on_d, unit * on_d_prime, unit * noisy, deviations=unit * sigma)
    np.testing.assert_allclose(scaled, here, rtol=1e-9, atol=1e-9)


def test_transcripts_of_trainings():
    distances, projections, sigma, world = watched()
    runs = [Transcript(*rows) for rows in zip(distances, projections, sigma, strict=True)]
    seen = Transcripts.from_runs(runs, world)
    np.testing.assert_array_equal(seen.log_odds, Transcripts(distances, projections, sigma, world).log_odds)
    other = Transcripts.from_runs(runs, world, deviations=2 * sigma)
    np.testing.assert_allclose(other.information, seen.information / 4)
    for run, row, on_d in zip(runs, seen.log_odds, world, strict=True):
        np.testing.assert_allclose(run.log_odds(trained_on_d=on_d), row)


def dp_sgd(*, local, runs=600, steps=12, z=6.0, clip=1.0, seed=3):
    """Full-batch DP-SGD of logistic regressions on D or D' = D less its last record, all runs at once."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 4))
    x[-1] *= 3
    y = (x @ [1.0, -1, 0.5, 0] + rng.normal(size=20) > 0).astype(float)
    world = rng.random(runs) < 0.5
    weights = np.zeros((runs, 4))
    kept = {name: [] for name in ("sums_d", "sums_d_prime", "noisy", "deviations")}
    for _ in range(steps):
        error = 1 / (1 + np.exp(-weights @ x.T)) - y
        gradients = error[..., None] * x
        norms = np.linalg.norm(gradients, axis=2, keepdims=True)
        clipped = gradients * np.minimum(1, clip / np.maximum(norms, 1e-12))
        on_d, on_d_prime = clipped.sum(axis=1), clipped[:, :-1].sum(axis=1)
        away = np.linalg.norm(on_d - on_d_prime, axis=1)
        sigma = z * (away if local else np.full(runs, clip))
        noisy = np.where(world[:, None], on_d, on_d_prime) + sigma[:, None] * rng.standard_normal((runs, 4))
        weights = weights - 0.3 * noisy / 20
        for name, value in zip(kept, (on_d, on_d_prime, noisy, sigma), strict=True):
            kept[name].append(value)
    return {name: np.stack(values, axis=1) for name, values in kept.items()} | {"trained_on_d": world}


def seen_in(runs):
    return Transcripts.from_gradients(**runs, sensitivity=1.0)


def test_with_local_noise_the_log_odds_of_real_trainings_have_the_law_of_theory():
    seen = seen_in(dp_sgd(local=True))
    mu = np.sqrt(12) / 6.0
    np.testing.assert_allclose(seen.information, mu**2, rtol=1e-9)
    for world, mean in ((True, mu**2 / 2), (False, -(mu**2) / 2)):
        assert stats.kstest(seen.final[seen.trained_on_d == world], stats.norm(mean, mu).cdf).pvalue > 0.01


def test_with_global_noise_the_law_holds_given_the_trajectory():
    seen = seen_in(dp_sgd(local=False))
    assert np.ptp(seen.information) > 0
    assert seen.information.max() <= 12 / 6.0**2 * (1 + 1e-9)
    truth = np.where(seen.trained_on_d, seen.final, -seen.final)
    standard = (truth - seen.information / 2) / np.sqrt(seen.information)
    assert stats.kstest(standard, stats.norm.cdf).pvalue > 0.01


def test_limits_of_the_advantage():
    limits = advantage_limits(epsilon=np.log(9), delta=1e-3)
    assert limits["tight"] == pytest.approx(0.2915, abs=5e-5)
    assert limits["classic"] == pytest.approx(0.2289, abs=5e-5)
    assert limits["generic"] == pytest.approx((8 + 2e-3) / 10)
    assert limits["yeom"] == 1
    loose = advantage_limits(epsilon=0.1, delta=0.0)
    assert loose == {"generic": pytest.approx(np.tanh(0.05)), "yeom": pytest.approx(np.expm1(0.1))}
    assert loose["generic"] < loose["yeom"]


def changed(name, at, value):
    arrays = dict(zip(("distances", "projections", "deviations", "trained_on_d"), watched(), strict=True))
    arrays[name] = arrays[name].astype(float)
    arrays[name][at] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (changed("distances", (2, 3), np.nan), "distances is nan at step 3 of repetition 2"),
        (changed("projections", (1, 0), np.inf), "projections is inf at step 0 of repetition 1"),
        (changed("deviations", (3, 4), np.nan), "deviations is nan at step 4 of repetition 3"),
        (changed("distances", (2, 3), -1), "distances is -1 at step 3 of repetition 2"),
        (changed("deviations", (0, 1), -1), "deviations is -1 at step 1 of repetition 0"),
        (changed("deviations", (0, 1), 0), "deviations is 0 at step 1 of repetition 0"),
        (changed("deviations", (0, 1), 1e-200), "deviations is 1e-200, so small .* at step 1 of repetition 0"),
        (changed("distances", (2, 3), 0), "although distances is 0 at step 3 of repetition 2"),
        (changed("trained_on_d", 0, 2), r"trained_on_d\[0\] is 2"),
    ],
)
def test_a_bad_number_is_refused_with_its_place(arrays, words):
    with pytest.raises(InputError, match=words):
        Transcripts(**arrays)


def test_wrong_shapes_are_refused():
    distances, projections, sigma, world = watched()
    with pytest.raises(InputError, match=r"projections has shape \(4, 4\)"):
        Transcripts(distances, projections[:, :4], sigma, world)
    with pytest.raises(InputError, match=r"deviations has shape .* 4 repetitions and 5 steps"):
        Transcripts(distances, projections, sigma[:, :4], world)
    with pytest.raises(InputError, match="trained_on_d has 3 entries for 4 repetitions"):
        Transcripts(distances, projections, sigma, world[:3])
    with pytest.raises(InputError, match=r"distances must have shape \(repetitions, steps\)"):
        Transcripts(distances[0], projections[0], sigma[0], world)
    with pytest.raises(InputError, match="mixed lengths"):
        Transcripts([[1.0], [1.0, 2.0]], projections, sigma, world)
    with pytest.raises(InputError, match="must hold numbers"):
        Transcripts([["a"]], projections, sigma, world)


def test_a_sensitivity_above_the_clipping_norm_is_refused():
    distances, projections, sigma, world = watched()
    top = distances.max()
    assert Transcripts(distances, projections, sigma, world, sensitivity=top / (1 + 1e-6)).sensitivity < top
    run, step = np.argwhere(distances > 0.9 * top)[0]
    with pytest.raises(InputError, match=f"above the global sensitivity .* at step {step} of repetition {run}"):
        Transcripts(distances, projections, sigma, world, sensitivity=0.9 * top)
    with pytest.raises(InputError, match="sensitivity must be in"):
        Transcripts(distances, projections, sigma, world, sensitivity=0)


def test_bad_gradient_logs_are_refused(monkeypatch):
    on_d, on_d_prime, noisy, sigma, world = logs(0)
    monkeypatch.setattr(gradient, "_AT_ONCE", 24)  # two repetitions at a time
    noisy[4, 2, 1] = np.nan
    with pytest.raises(InputError, match="noisy is nan at step 2 of repetition 4, entry 1"):
        log_odds_from_gradients(on_d, on_d_prime, noisy, deviations=sigma)
    with pytest.raises(InputError, match="noisy is nan at step 2 of repetition 4, entry 1"):
        Transcripts.from_gradients(on_d, on_d_prime, noisy, deviations=sigma, trained_on_d=world)
    with pytest.raises(InputError, match="sums_d_prime has shape"):
        log_odds_from_gradients(on_d, on_d_prime[:, :, :2], noisy, deviations=sigma)
    with pytest.raises(InputError, match=r"sums_d must hold numbers \(repetitions, steps, dims\)"):
        log_odds_from_gradients(on_d[0], on_d_prime, noisy, deviations=sigma)
    noisy[4, 2, 1] = 0
    with pytest.raises(InputError, match="so small that the log-odds overflow at step 0 of repetition 0"):
        log_odds_from_gradients(on_d, on_d_prime, noisy, deviations=1e-170)
    with pytest.raises(InputError, match="trained_on_d has 5 entries for 6"):
        Transcripts.from_gradients(on_d, on_d_prime, noisy, deviations=sigma, trained_on_d=world[:5])


def test_scores_need_both_worlds():
    distances, projections, sigma, _ = watched()
    with pytest.raises(InputError, match="every run used D;"):
        Transcripts(distances, projections, sigma, np.ones(4)).scores()


def test_arrays_cannot_be_changed_afterwards():
    distances, projections, sigma, world = watched()
    seen = Transcripts(distances, projections, sigma, world)
    distances[0, 0] = 99
    assert seen.distances[0, 0] != 99
    for array in (seen.distances, seen.deviations, seen.log_odds, seen.beliefs, seen.wins):
        with pytest.raises(ValueError, match="read-only"):
            array.reshape(-1)[0] = 1
