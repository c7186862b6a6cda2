"""The parts of the audit against slow second routes: neighbours, cells, copies, criteria, utility, adapters, forms."""

import numpy as np
import pandas as pd
import pyarrow
import pytest
from scipy import stats

from dosimeter import InputError, OneRun, RunOptions, lower_bound
from dosimeter.audits.synthetic import audit_synthetic, surest
from dosimeter.audits.synthetic.adapter import FitSample, generator_of
from dosimeter.audits.synthetic.cells import fit_cells
from dosimeter.audits.synthetic.disclosure import Ground, disclosure, inference, linkability, singling_out
from dosimeter.audits.synthetic.nearest import nearest, nearest_by_column
from dosimeter.audits.synthetic.rows import packed, read_real, read_release, unpacked
from dosimeter.audits.synthetic.scores import cell_ratios
from dosimeter.audits.synthetic.space import fit_space, hashes
from dosimeter.audits.synthetic.surest import TIED, best_cut, best_form
from dosimeter.audits.synthetic.utility import utility
from dosimeter.audits.verify import verify
from dosimeter.generators import GaussianCopula

HERE = RunOptions(engine="inline", progress=False)


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({"x": rng.normal(size=rows), "k": rng.integers(0, 5, rows), "w": rng.choice(list("abc"), rows)})
    made.loc[rng.random(rows) < 0.2, "x"] = np.nan
    return made


class TestNearest:
    @pytest.mark.parametrize(("queries", "rows", "columns"), [(1, 1, 1), (7, 3000, 5), (2500, 9000, 3), (300, 20, 40)])
    def test_agrees_with_all_distances(self, queries, rows, columns):
        rng = np.random.default_rng(queries)
        a, b = (rng.normal(size=(n, columns)).astype(np.float32) for n in (queries, rows))
        found = nearest(a, b, workers=2)
        exact = np.sqrt(((a[:200, None].astype(float) - b[None]) ** 2).sum(axis=2))
        assert np.allclose(found.distance[:200], exact.min(axis=1), rtol=1e-4)
        assert np.allclose(exact[np.arange(len(exact)), found.place[:200]], exact.min(axis=1), rtol=1e-4)

    def test_a_copy_is_at_distance_zero_and_a_row_is_not_its_own_neighbour(self):
        rows = np.random.default_rng(0).normal(size=(2100, 6)).astype(np.float32)
        assert (nearest(rows, rows).distance == 0).all()
        apart = nearest(rows, rows, itself=True)
        assert (apart.distance > 0).all() and (apart.place != np.arange(2100)).all()

    def test_by_column_agrees_with_a_loop(self):
        pool, made = read_real(frame(60), "data")[0], read_real(frame(40, 1), "data")[0]
        space = fit_space(pool)
        (a, aw), (b, bw) = space.parts(pool), space.parts(made)
        found = nearest_by_column((a, aw), (b, bw)).distance
        slow = [
            min(np.abs(a[i] - b[j]).sum() + (bw[j].sum() - (aw[i] * bw[j]).sum()) for j in range(40)) for i in range(60)
        ]
        assert np.allclose(found, slow, atol=1e-5)


class TestSpace:
    def test_numbers_are_ranks_and_words_are_one_apart(self):
        pool = read_real(pd.DataFrame({"x": [1.0, 10.0, 1000.0, 1000.0], "w": ["a", "b", "c", "c"]}), "data")[0]
        points = fit_space(pool).coordinates(pool)
        assert np.allclose(points[:, 0], [0.125, 0.375, 0.75, 0.75])
        assert np.isclose(((points[0, 1:] - points[1, 1:]) ** 2).sum(), 1) and (points[2] == points[3]).all()

    def test_a_missing_value_is_apart_from_every_number_and_near_another_missing_one(self):
        pool = read_real(pd.DataFrame({"x": [0.0, 1.0, np.nan, np.nan]}), "data")[0]
        points = fit_space(pool).coordinates(pool)
        gaps = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        assert gaps[2, 3] == 0 and gaps[2, :2].min() >= 0.75

    def test_an_increasing_transform_of_a_column_changes_nothing(self):
        data = frame(50)
        one, two = (read_real(d, "data")[0] for d in (data, data.assign(k=np.exp(data["k"]))))
        assert np.allclose(fit_space(one).coordinates(one), fit_space(two).coordinates(two))

    def test_the_same_texts_are_near(self):
        texts = [f"patient {i} came with pain {i % 17} and left" for i in range(400)]
        pool = read_real({"note": texts}, "data")[0]
        assert pool.fields[0].kind == "text"
        space = fit_space(pool)
        again = space.coordinates(read_release({"note": [*texts[:3], "something else entirely here"]}, pool, "made"))
        own = space.coordinates(pool)
        assert np.allclose(again[:3], own[:3]) and ((again[3] - own) ** 2).sum(axis=1).min() > 0.2


class TestCells:
    def test_counts_agree_with_a_loop(self):
        pool, made = read_real(frame(80), "data")[0], read_real(frame(50, 1), "data")[0]
        cells = fit_cells(pool, 0)
        asked, published = cells.codes(pool), cells.codes(made)
        found = cells.counts(published, asked)
        assert len(cells.tables) == 7
        for place, table in enumerate(cells.tables):
            columns = list(table)
            slow = [(published[:, columns] == row[columns]).all(axis=1).sum() for row in asked]
            assert found[:, place].tolist() == slow

    def test_many_columns_are_drawn_from(self):
        pool = read_real(np.random.default_rng(0).normal(size=(60, 40)), "data")[0]
        tables = fit_cells(pool, 1).tables
        assert len(tables) == len(set(tables)) == 40 + 120 + 60

    @pytest.mark.filterwarnings("error")
    def test_releases_that_had_all_records_are_no_trouble(self):
        cells = np.random.default_rng(0).integers(0, 9, (4, 12, 3)).astype(np.float32)
        had = np.random.default_rng(1).random((3, 12)) < 0.5
        had[0], had[:, 5] = True, True
        ratio = cell_ratios(cells, 0, np.arange(1, 4), had)
        expected = np.log(cells[0, 5] + 0.5)  # beside what the others would count without the record
        gain = np.mean([cells[k][had[k - 1]].mean(axis=0) - cells[k][~had[k - 1]].mean(axis=0) for k in (2, 3)], axis=0)
        usual = np.maximum(cells[1:, 5].mean(axis=0) - gain, 0)
        assert np.allclose(ratio[5], expected - np.log(usual + 0.5), atol=1e-5)


class TestSurest:
    def test_the_cut_proves_most_about_one_release(self):
        rng = np.random.default_rng(0)
        scores, masks = rng.normal(size=(4, 500)), rng.random((4, 500)) < 0.5
        scores[:, :30], masks[:, :29], masks[:, 29] = 9 + rng.random((4, 30)), True, False
        found = best_cut(scores, masks, 0.05)
        above = scores >= found.score
        assert found.share == masks[above].mean() >= 0.96
        proven = []
        for cut in np.unique(scores):
            tried, right = (scores >= cut).sum() / 4, masks[scores >= cut].sum() / 4
            if right >= 0.9 * tried:
                proven.append(stats.beta.ppf(0.05, right, tried - right + 1))
        right, tried = masks[above].sum() / 4, above.sum() / 4
        assert stats.beta.ppf(0.05, right, tried - right + 1) == pytest.approx(max(proven))

    def test_where_nothing_is_sure_the_scores_stay(self):
        rng = np.random.default_rng(0)
        level = {"delta": 1e-5, "confidence": 0.95}
        masks = rng.random((4, 300)) < 0.5
        assert best_form(rng.normal(size=(4, 300)), masks, level) is None
        assert best_form(np.zeros((4, 300)), masks, level) is None

    def test_a_form_that_gains_next_to_nothing_is_not_worth_the_change(self, monkeypatch):
        rng = np.random.default_rng(0)
        masks = rng.random((4, 300)) < 0.5
        scores = np.where(masks & (rng.random((4, 300)) < 0.2), 9.0, 0.0) + rng.random((4, 300))
        for gain, chosen in ((0.03, None), (0.2, TIED)):
            proven = iter([2.0, 2.0 + gain, 1.0])  # of the scores themselves, tied, alone
            monkeypatch.setattr(surest, "_proven", lambda *_, proven=proven: next(proven))
            found = best_form(scores, masks, {"delta": 1e-5, "confidence": 0.95})
            assert (found and found[0]) == chosen

    def test_few_records_that_are_memorised_prove_what_so_many_sure_members_can(self):
        def memorise(records, seed):  # all others leak a little, through their columns
            rng = np.random.default_rng(seed)
            made = np.stack([rng.choice(column, len(column)) for column in records.T], axis=1)
            made[:20] = records[rng.choice(len(records), 20, replace=False)]
            return made

        data = np.random.default_rng(1).integers(0, 40, (2000, 8)).astype(float)
        found = audit_synthetic(memorise, data, references=4, secret=(), seed=0, run=HERE)
        known = np.arange(2000) < 20
        sure = lower_bound(OneRun(known.astype(float), known | (np.arange(2000) % 2 == 0)), delta=1e-5).low
        assert found.details.copies.inside == 20 and found.details.copies.outside == 0
        assert found.headline.low > 0.9 * sure > 1
        assert found.headline.low == found.details.attacks[0].epsilon > found.details.attacks[1].epsilon
        assert found.metadata.attack == found.details.attacks[0].attack and found.details.attacks[1].attack == "stack"
        assert verify(found).valid


class TestRows:
    @pytest.mark.parametrize("form", [lambda d: d, lambda d: d.to_dict("list"), pyarrow.Table.from_pandas])
    def test_every_form_of_a_table_is_the_same_table(self, form):
        data = frame(30)
        pool, same = read_real(data, "data")[0], read_real(form(data), "data")[0]
        assert [f.name for f in same.fields] == ["x", "k", "w"]
        assert np.array_equal(hashes(pool), hashes(same))

    def test_what_goes_to_the_store_comes_back(self):
        pool = read_real(frame(40).assign(t=[f"é{i}" for i in range(40)]), "data")[0]
        assert np.array_equal(hashes(unpacked(packed(pool), pool)), hashes(pool))

    def test_equal_rows_have_equal_hashes_and_others_do_not(self):
        data = frame(200).drop_duplicates().reset_index(drop=True)
        own = hashes(read_real(data, "data")[0])
        assert np.unique(own).size == len(data)
        shuffled = read_release(data.sample(frac=1, random_state=0), read_real(data, "data")[0], "made")
        assert set(hashes(shuffled)) == set(own)

    def test_numbers_written_as_texts_are_numbers(self):
        pool = read_real(frame(20), "data")[0]
        made = frame(20).assign(k=frame(20)["k"].astype(str))
        assert np.array_equal(hashes(read_release(made, pool, "made")), hashes(pool))


def ground(pool_frame, release_frame, inside, seed=0):
    pool = read_real(pool_frame, "data")[0]
    release = read_release(release_frame, pool, "made")
    return Ground(fit_space(pool), pool, release, np.flatnonzero(inside), np.flatnonzero(~inside), 0.95, seed, 1)


class TestCriteria:
    def test_the_difference_has_an_exact_test_and_a_limit(self):
        inside, outside = np.arange(100) < 60, np.arange(120) < 30
        found = disclosure(inside, outside, 0.95)
        p = stats.fisher_exact([[60, 40], [30, 90]], alternative="greater").pvalue
        assert np.isclose(found.p_value, p) and found.difference == pytest.approx(0.35)
        assert 0 < found.difference_low < found.difference

    def test_independent_tables_show_no_risk_of_singling_out(self):
        # anonymeter without a control calls 0.26 of such attacks a risk
        found = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            data, made = (pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"]) for n in (600, 300))
            found.append(singling_out(ground(data, made, np.arange(600) < 300, seed)).found.difference)
        assert abs(np.mean(found)) < 0.05

    def test_copies_are_singled_out_and_linked(self):
        data = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 6)))
        where = ground(data, data[:200], np.arange(400) < 200)
        assert singling_out(where).found.difference_low > 0.05
        linked = linkability(where).found
        assert linked.inside == 200 and linked.outside < 20 and linked.p_value < 1e-9

    def test_what_the_population_tells_is_not_called_a_leak(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(900, 3))
        data = pd.DataFrame(x, columns=list("abc")).assign(secret=np.where(x[:, 0] > 0, "yes", "no"))
        found = inference(ground(data[:600].reset_index(drop=True), data[600:], np.arange(600) < 300), 3)
        assert found.found.inside / found.found.inside_of > found.majority + 0.2
        assert found.baseline > found.majority + 0.2 and found.found.p_value > 0.01

    def test_a_secret_that_is_copied_is_a_leak(self):
        rng = np.random.default_rng(0)
        data = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc")).assign(
            secret=rng.choice(["yes", "no"], 400)
        )
        found = inference(ground(data, data[:200], np.arange(400) < 200), 3)
        assert found.found.inside == 200 and found.found.difference_low > 0.3 and found.found.p_value < 1e-9

    def test_negative_numbers_are_not_right_by_their_sign(self):
        rng = np.random.default_rng(0)
        data = pd.DataFrame({"a": rng.normal(size=400), "debt": -rng.uniform(0, 100, 400)})
        made = pd.DataFrame({"a": rng.normal(size=300), "debt": -rng.uniform(0, 100, 300)})
        found = inference(ground(data, made, np.arange(400) < 200), 1)
        assert found.found.inside / found.found.inside_of < 0.25


class TestUtility:
    def test_the_same_rows_are_of_full_use_and_shuffled_columns_of_less(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1200, 2))
        data = pd.DataFrame(x, columns=["a", "b"]).assign(y=np.where(x.sum(axis=1) > 0, "up", "down"))
        pool = read_real(data, "data")[0]
        fitted, held = np.arange(800), np.arange(800, 1200)
        same = utility(pool, fitted, held, pool.take(fitted), 2, 0)
        apart = data[:800].apply(lambda c: rng.permutation(c.to_numpy()))
        shuffled = utility(pool, fitted, held, read_release(apart, pool, "made"), 2, 0)
        assert same.shapes == 1 and same.trends == 1 and same.trained.synthetic == same.trained.real > 0.9
        assert shuffled.shapes == 1 and shuffled.trends < 0.9 and shuffled.trained.synthetic < 0.7

    def test_other_columns_are_named(self):
        pool = read_real(frame(300), "data")[0]
        made = read_release(frame(300).assign(k=9), pool, "made")
        found = utility(pool, np.arange(200), np.arange(200, 300), made, None, 0)
        assert found.worst[0][0] == "k" and found.worst[0][1] < 0.1


class Sampler:
    """What most packages look like."""

    fits = 0

    def __init__(self, random_state=None):
        self.random_state = random_state
        self.rows = None

    def fit(self, data):
        assert self.rows is None, "a generator that was fitted before is fitted again"
        Sampler.fits += 1
        self.rows = data
        return self

    def sample(self, num_rows=1):
        return self.rows.sample(num_rows, replace=True, random_state=self.random_state).reset_index(drop=True)


class Loader(Sampler):
    def generate(self, count, random_state=0):
        class Loaded:
            def __init__(self, rows):
                self.rows = rows

            def dataframe(self):
                return self.rows

        return Loaded(self.rows.sample(count, replace=True, random_state=random_state))


class Tables(Sampler):
    def sample(self, n):
        return {"table": super().sample(n)}


class Discrete(Sampler):
    def fit(self, data, discrete_columns=()):
        assert list(discrete_columns) == ["w"]
        return super().fit(data)


class TestAdapters:
    @pytest.mark.parametrize("generator", [Sampler(), Sampler, Tables(), Discrete()])
    def test_objects_and_classes_with_fit_and_sample(self, generator):
        before, made = Sampler.fits, FitSample(generator, 30)
        for seed in range(2):
            rows = made(frame(50), seed)
            assert len(rows) == 30 and list(rows.columns) == ["x", "k", "w"]
        assert Sampler.fits == before + 2

    @pytest.mark.parametrize("generator", [Tables(), Sampler])
    def test_an_audit_of_them(self, generator):
        before = Sampler.fits
        audit = audit_synthetic(generator, frame(100), references=2, seed=0, run=HERE)
        assert Sampler.fits == before + 3 and audit.details.published.rows == 50
        assert audit.metadata.model == (generator if isinstance(generator, type) else type(generator)).__name__

    def test_the_number_of_rows_is_fixed_before_the_coins(self):
        found = {
            audit_synthetic(Sampler(), frame(200), references=0, seed=s, run=HERE).details.published.rows
            for s in range(2)
        }
        assert found == {100}
        more = audit_synthetic(Sampler(), frame(200), references=0, seed=0, rows=500, run=HERE)
        assert more.details.published.rows == 500

    def test_generators_of_dosimeter(self):
        audit = audit_synthetic(GaussianCopula(), frame(200).dropna(), references=2, seed=0, run=HERE)
        assert audit.metadata.model == "GaussianCopula" and audit.details.utility.shapes > 0.8

    def test_a_loader(self):
        class Synth:
            def fit(self, data):
                self.rows = data

            def generate(self, count, random_state):
                return Loader.generate(self, count, random_state)

        made = FitSample(Synth(), 12)(frame(50), seed=3)
        assert len(made) == 12 and list(made.columns) == ["x", "k", "w"]

    def test_the_same_seed_samples_the_same(self):
        made = FitSample(Sampler(), 30)
        pd.testing.assert_frame_equal(made(frame(50), 5), made(frame(50), 5))
        assert not made(frame(50), 5).equals(made(frame(50), 6))

    def test_a_generator_without_a_seed_is_announced(self):
        class Unseeded:
            def fit(self, rows):
                self.rows = rows

            def sample(self, num_rows):
                return self.rows[:num_rows]

        data = np.random.default_rng(0).normal(size=(60, 2))
        for generator, told in ((Unseeded(), True), (Unseeded, True), (GaussianCopula(), False)):
            found = audit_synthetic(generator, data, references=0, secret=(), seed=0, run=HERE)
            assert any("takes no seed" in note for note in found.metadata.warnings) is told

    def test_an_object_that_cannot_sample_is_refused(self):
        class Silent:
            def fit(self, data):
                return self

        with pytest.raises(InputError, match="neither sample nor generate"):
            generator_of(Silent(), None, 10)

    def test_ctgan(self):
        ctgan = pytest.importorskip("ctgan")
        made = FitSample(ctgan.CTGAN(epochs=1, batch_size=20, pac=1, enable_gpu=False), 25)(frame(60).dropna(), 1)
        assert len(made) == 25
