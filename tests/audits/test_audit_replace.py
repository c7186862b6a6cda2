"""The replace-one game, on trainings whose ε is known exactly."""

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError, RunOptions
from dosimeter.audits.verify import verify
from dosimeter.engine import Store

HERE = RunOptions(engine="inline", progress=False)
VALUES = np.where(np.arange(60) % 2, 1.0, -1.0)
RECORDS = (VALUES[:, None], np.zeros(60))


def noisy_sum(scale):
    """Release the sum of values ±1 with Laplace noise: 1/scale-DP for adding or removing, 2/scale-DP for replacing."""

    def train(indices, seed):
        total = VALUES[indices].sum() + np.random.default_rng(seed).laplace(0, scale)
        return lambda records: records[:, 0] * total

    return train


OWN = {"signal": lambda outputs, y: outputs, "attack": "loss", "run": HERE}


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_for_replacing(seed):
    """ε = 2 for adding or removing, and 4 for replacing a −1 by a 1: the bound lies between, so it tells them apart."""
    train = noisy_sum(0.5)
    found = dm.audit_training(train, RECORDS, game="replace", points=[1], shadows=32, runs=1000, seed=seed, **OWN)
    row = found.details.points[0]
    assert row.record == 1 and row.substitute not in (None, 1)
    true = abs(VALUES[1] - VALUES[row.substitute]) / 0.5
    assert found.headline.low <= true
    if true:
        assert found.headline.low > 2.2
    assert {e.neighbours for e in found.estimates} == {"replace"}
    assert "replacing one record" in found.headline.claim and found.metadata.game == "replace"
    assert verify(found).valid
    assert verify(dm.Audit.from_json(found.to_json())).valid


@pytest.mark.slow
def test_it_holds_its_level():
    """60 audits of a training that reaches its ε: at most 5 % of the bounds may be too high."""
    from scipy.stats import binomtest

    train, too_high, told = noisy_sum(1.0), 0, 0
    for seed in range(60):
        found = dm.audit_training(train, RECORDS, game="replace", points=[1], shadows=8, runs=60, seed=seed, **OWN)
        true = abs(VALUES[1] - VALUES[found.details.points[0].substitute]) / 1.0
        too_high += found.headline.low > true
        told += found.headline.low > 0
    assert binomtest(too_high, 60, 0.05, alternative="greater").pvalue > 0.01
    assert told > 12


def test_all_models_are_trained_on_equally_many_records():
    sizes, members = set(), []

    def train(indices, seed):
        members.append(indices)
        return lambda records: records[:, 0] * VALUES[indices].sum()

    found = dm.audit_training(train, RECORDS, game="replace", challenges=2, shadows=8, runs=20, seed=0, **OWN)
    runs = members[-20:]
    sizes = {len(rows) for rows in runs}
    assert sizes == {58}  # two of the four records of the pairs
    for row in found.details.points:
        held = np.array([[row.record in rows, row.substitute in rows] for rows in runs])
        assert (held.sum(axis=1) == 1).all() and held.any(axis=0).all()
    assert len({row.record for row in found.details.points} | {row.substitute for row in found.details.points}) == 4


def test_the_guarantee_beside_it_is_for_replacing():
    torch = pytest.importorskip("torch", reason="needs torch: dosimeter[torch]")
    from dosimeter.training import Privacy, Recipe

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 2, 60)
    recipe = Recipe(steps=5, batch_size=20, sampling="poisson", dp=Privacy(2.0))
    options = {"recipe": recipe, "game": "replace", "shadows": 8, "runs": 30, "seed": 0, "run": HERE}
    found = dm.audit_training(lambda: torch.nn.Linear(4, 2), (x, y), canaries="mislabelled", **options)
    assert found.region is not None and {g.neighbours for g in found.upper} == {"replace"}
    assert found.region.lower.neighbours == "replace" and found.headline.low <= found.region.upper.epsilon
    assert found.details.points[0].record >= 60 > found.details.points[0].substitute


def test_persons_are_replaced_by_persons():
    owners = np.repeat(np.arange(20), 3)
    found = dm.audit_training(noisy_sum(0.2), RECORDS, game="replace", groups=owners, shadows=8, runs=40, seed=0, **OWN)
    assert found.metadata.unit == "person" and "replacing one person" in found.headline.claim
    assert found.details.points[0].substitute < 20


def test_a_claim_is_tested_for_replacing():
    """ε = 2 is true for adding or removing one record, and false for replacing one."""
    options = {"game": "replace", "points": [1], "shadows": 16, "runs": 600, "claim": (2.0, 1e-5), "seed": 1}
    found = dm.audit_training(noisy_sum(0.5), RECORDS, **options, **OWN)
    if VALUES[found.details.points[0].substitute] == -1:
        assert found.details.claim.rejected


def test_a_page_and_a_store(tmp_path):
    train = noisy_sum(0.5)
    kept = RunOptions(engine="inline", progress=False, store=Store(tmp_path / "store"))
    options = {**OWN, "run": kept, "game": "replace", "shadows": 8, "runs": 40, "name": "sum"}
    first = dm.audit_training(train, RECORDS, **options)
    again = dm.audit_training(train, RECORDS, **options)
    assert again.metadata.provenance.computed == 0 and again.headline.low == first.headline.low
    other = dm.audit_training(train, RECORDS, **{**options, "game": "challenge"})
    assert other.metadata.seed != first.metadata.seed
    pytest.importorskip("altair", reason="pages need altair")
    page = tmp_path / "page.html"
    first.to_html(page)
    assert "replacing one record" in page.read_text(encoding="utf-8")


def test_refusals():
    with pytest.raises(InputError, match="game must be one of"):
        dm.audit_training(noisy_sum(1.0), RECORDS, game="swap", **OWN)
    with pytest.raises(InputError, match="leaves no fixed record"):
        few = (VALUES[:6, None], np.zeros(6))
        dm.audit_training(noisy_sum(1.0), few, game="replace", challenges=3, shadows=8, runs=40, **OWN)
