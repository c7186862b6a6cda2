"""Laws that every accountant obeys, over the registry: a new accountant is tested by being registered."""

import itertools
import json
import subprocess
import sys

import pytest

from dosimeter.accounting import DpSgd, Gaussian, account
from dosimeter.accounting.accountants import ACCOUNTANTS, FORMULAS, applicable

RUNS = {
    "poisson": DpSgd(1.2, 0.02, 300),
    "poisson, much noise": DpSgd(20.0, 0.1, 1000),
    "poisson, little noise": DpSgd(0.5, 0.01, 100),
    "poisson, replace": DpSgd(1.2, 0.02, 300, "poisson", "replace"),
    "without replacement": DpSgd(3.0, 0.02, 300, "without-replacement"),
    "shuffled": DpSgd(4.0, 0.02, 300, "shuffled"),
    "full batch": DpSgd(4.0, 1.0, 30),
    "gaussian": Gaussian(1.0),
    "phases": (DpSgd(1.2, 0.02, 100), DpSgd(2.0, 0.05, 50)),
}
EVERY = {**ACCOUNTANTS, **FORMULAS}


def values(run, delta=1e-5):
    return {result.method: result for result in account(run, delta=delta)}


def test_every_accountant_is_met_by_some_run():
    from dosimeter.accounting.mechanism import mechanism

    met = set(itertools.chain.from_iterable(applicable(mechanism(run)) for run in RUNS.values()))
    assert met == set(EVERY)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_names_values_and_json(run):
    for name, result in values(run).items():
        assert result.epsilon >= 0
        assert result.delta == 1e-5
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["method"] == name
        assert result.is_bound or result.warnings


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_tighter_accountants_are_tighter(run):
    found = values(run)
    order = ["gaussian", "pld", "rdp", "rdp-classic"]
    chain = [found[name].epsilon for name in order if name in found]
    assert all(small <= large * (1 + 1e-12) for small, large in itertools.pairwise(chain))
    if "rdp" in found:
        assert found["rdp"].epsilon <= found["zcdp"].epsilon * (1 + 1e-5)
        assert found["naive-exact"].epsilon <= found["naive"].epsilon or not found["naive"].is_bound
    assert found["zcdp"].epsilon <= found["zcdp-classic"].epsilon


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_proven_bound_is_above_the_tightest(run):
    found = values(run)
    best = found["pld"].epsilon if "pld" in found else found["rdp"].epsilon
    assert all(result.epsilon >= best * (1 - 1e-9) for result in found.values() if result.is_bound)


def more(run, **changes):
    fields = {name: getattr(run, name) for name in run.__dataclass_fields__}
    return type(run)(**(fields | changes))


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if isinstance(run, DpSgd)])
def test_monotone(name):
    run = RUNS[name]
    base = values(run)
    noisier = values(more(run, noise_multiplier=run.noise_multiplier * 1.3))
    longer = values(more(run, steps=run.steps * 2))
    looser = values(run, delta=1e-4)
    rarer = values(more(run, sample_rate=run.sample_rate / 2)) if run.sample_rate < 1 else {}
    for method, result in base.items():
        assert noisier[method].epsilon < result.epsilon, method
        assert longer[method].epsilon > result.epsilon, method
        assert looser[method].epsilon < result.epsilon, method
        if method in rarer:
            assert rarer[method].epsilon <= result.epsilon * (1 + 1e-12), method


def test_full_batch_is_the_closed_form():
    found, closed = values(DpSgd(4.0, 1.0, 30)), values(Gaussian(4.0, 30))
    assert {name: result.epsilon for name, result in found.items()} == {
        name: result.epsilon for name, result in closed.items()
    }
    assert found["pld"].epsilon == found["gaussian"].epsilon


def test_what_is_no_bound_says_so():
    found = values(DpSgd(6.99, 0.02, 5000))
    assert {name for name, result in found.items() if not result.is_bound} == {
        "naive-epochs",
        "advanced-epochs",
        "zcdp-epochs",
        "gdp-clt",
    }
    assert found["gdp-clt"].epsilon < found["pld"].epsilon  # and here it would be wrong as a bound


def test_importing_accounting_is_cheap():
    code = "import sys, dosimeter.accounting, dosimeter.identifiability; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("dp_accounting", "torch", "altair", "pandas", "scipy.stats", "scipy.optimize"):
        assert f"'{heavy}'" not in modules, heavy
