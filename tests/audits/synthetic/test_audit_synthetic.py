"""Synthetic data sets audited end to end: what is proven, what is never seen, what is kept."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dosimeter as dm
from dosimeter import Gaussian, Guarantee, InputError, RunOptions, Store, fair_coins
from dosimeter.audits.gate import gate, passed
from dosimeter.audits.result import Audit
from dosimeter.audits.synthetic import audit_synthetic, existing, run
from dosimeter.audits.verify import Standing, verify
from dosimeter.estimators.lower_bound import proven_epsilon

HERE = RunOptions(engine="inline", progress=False)
RECORDS = 240


def mixed(rows=RECORDS, seed=0):
    """Numbers, whole numbers, words, dates, missing values and a column of texts."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "age": rng.integers(18, 90, rows),
            "city": rng.choice(["Bern", "Genf", "Basel", "Chur"], rows),
            "since": [datetime.date(2000, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 9000, rows)],
            "note": [f"case {n} of ward {n % 7}" for n in rng.integers(0, 10**6, rows)],
            "sick": rng.choice(["yes", "no"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.1, "size"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "city"] = None
    return frame


def copier(records, seed):
    return records


def blurred(records, seed):
    rng = np.random.default_rng(seed)
    return records + 0.01 * rng.normal(size=records.shape)


def table(rows=RECORDS, seed=0, columns=4):
    return np.random.default_rng(seed).normal(size=(rows, columns))


class Watched:
    """Keeps what the generator was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, records, seed):
        self.seen.append(np.asarray(records))
        return records


@pytest.fixture(scope="module")
def copied():
    return audit_synthetic(copier, mixed(), references=2, seed=1, run=HERE)


@pytest.fixture(scope="module")
def seventh():
    return audit_synthetic(blurred, table(120), references=2, seed=7, run=HERE)


class TestWithCoins:
    def test_a_copier_of_mixed_rows_is_caught_near_the_ceiling(self, copied):
        head = copied.headline
        assert head.neighbours == "add/remove" and str(head.validity) == "finite-sample"
        assert head.low > 0.75 * copied.details.published.perfect > 2
        assert "rows were published from" in head.claim and "for each" in head.claim

    def test_every_number_follows_from_its_evidence(self, copied):
        found = verify(copied)
        assert [f.standing for f in found.findings] == [Standing.FOLLOWS] * len(found.findings)
        assert found.of("coins") is not None

    def test_it_is_read_back_as_it_was_written(self, copied):
        again = Audit.from_json(copied.to_json())
        assert again.to_dict() == copied.to_dict()
        assert again.details.copies == copied.details.copies

    def test_a_gate_stops_it(self, copied):
        assert not passed(gate(copied, max_epsilon=1))

    def test_a_forged_headline_is_found(self, copied):
        values = json.loads(copied.to_json())
        head = values["estimates"][0]
        said = f"{head['low']:.4g}"
        head["epsilon"] = head["low"] = 0.5
        head["claim"] = head["claim"].replace(said, "0.5")
        values["risk"]["would_allow"] = None
        assert not verify(Audit.from_dict(values)).valid

    def test_copies_are_counted_beside_the_control(self, copied):
        copies = copied.details.copies
        assert copies.inside == copies.inside_of == copied.metadata.members
        assert copies.outside == 0 and copies.p_value < 1e-9
        data = mixed()
        inside = data[fair_coins(RECORDS, copied.metadata.seeds.coins)].reset_index(drop=True)
        for record, row in copies.pairs:
            pd.testing.assert_series_equal(data.iloc[record], inside.iloc[row], check_names=False)

    def test_columns_are_taken_for_what_they_are(self, copied):
        kinds = dict(copied.metadata.columns)
        assert kinds == {
            "size": "number",
            "age": "number",
            "city": "word",
            "since": "date",
            "note": "text" if RECORDS > 256 else "word",
            "sick": "word",
        }

    def test_the_risk_of_every_record_is_there_and_not_in_the_file(self, copied):
        assert copied.risk_table().num_rows == RECORDS
        assert "record_risk" not in copied.to_json()
        assert {row.record for row in copied.exposed} <= set(range(RECORDS))

    def test_the_generator_sees_those_whose_coin_says_in_and_nobody_else(self):
        watched, data = Watched(), table()
        audit = audit_synthetic(watched, data, references=3, seed=4, run=HERE, key="watched")
        coins = fair_coins(RECORDS, audit.metadata.seeds.coins)
        masks = fair_coins(3 * RECORDS, audit.metadata.seeds.masks).reshape(3, RECORDS)
        assert len(watched.seen) == 4
        for seen, mask in zip(watched.seen, [coins, *masks], strict=True):
            assert np.array_equal(seen, data[mask])

    def test_records_without_a_coin_are_always_in(self):
        watched, data = Watched(), table()
        audit = audit_synthetic(watched, data, references=2, audit_records=100, seed=4, run=HERE, key="watched")
        counted = sum((seen[:, None] == data[None]).all(axis=2).any(axis=0).astype(int) for seen in watched.seen)
        assert (counted == 3).sum() >= RECORDS - 100
        published = audit.details.published
        assert (published.audited, published.always_in) == (100, RECORDS - 100)
        assert audit.metadata.members + audit.metadata.nonmembers == 100
        assert verify(audit).valid

    def test_several_releases_have_coins_of_their_own(self):
        audit = audit_synthetic(blurred, table(), references=2, runs=3, seed=2, run=HERE)
        assert audit.metadata.members + audit.metadata.nonmembers == 3 * RECORDS
        assert audit.metadata.mask_hash == dm.mask_hash(fair_coins(3 * RECORDS, audit.metadata.seeds.coins))
        assert verify(audit).valid

    def test_without_references_closeness_alone_is_left(self):
        audit = audit_synthetic(blurred, table(), references=0, seed=2, run=HERE)
        assert audit.headline.low > 1.5 and [row.attack for row in audit.details.attacks] == ["closeness"]

    def test_more_rows_for_each_member_are_stated(self):
        audit = audit_synthetic(
            lambda r, s: np.concatenate([r] * 5), table(), references=2, seed=2, run=HERE, key="five"
        )
        assert audit.details.published.per_member == 5 and "(5 for each)" in audit.headline.claim

    def test_the_same_seed_gives_the_same_audit_and_none_gives_fresh_coins(self, seventh):
        assert audit_synthetic(blurred, table(120), references=2, seed=7, run=HERE).to_dict() == seventh.to_dict()
        fresh = [audit_synthetic(blurred, table(60), references=0, run=HERE).metadata.seed for _ in range(2)]
        assert fresh[0] != fresh[1]

    @pytest.mark.once
    def test_processes_give_the_same_bits(self, seventh):
        local = RunOptions(engine="local", workers=2, progress=False)
        assert audit_synthetic(blurred, table(120), references=2, seed=7, run=local).estimates == seventh.estimates


class TestPersons:
    def test_one_coin_for_all_rows_of_a_person(self):
        watched, data = Watched(), table(300)
        people = np.repeat(np.arange(100), 3)
        audit = audit_synthetic(watched, data, groups=people, references=2, seed=3, run=HERE, key="watched")
        coins = fair_coins(100, audit.metadata.seeds.coins)
        assert np.array_equal(watched.seen[0], data[np.repeat(coins, 3)])
        assert audit.metadata.unit == "person" and "one person" in audit.headline.claim
        assert audit.metadata.members + audit.metadata.nonmembers == 100
        assert audit.headline.low > 1.5 and verify(audit).valid
        assert "one person" in gate(audit, max_epsilon=1)[0].reason

    def test_a_release_that_exists(self):
        data, held = table(300), table(300, 1)
        ids = np.repeat(np.arange(100), 3), 1000 + np.repeat(np.arange(100), 3)
        audit = audit_synthetic(synthetic=data[:150], members=data, nonmembers=held, groups=ids, run=HERE)
        assert audit.metadata.unit == "person" and audit.metadata.members == 100
        assert "150 rows were published from 300 records (0.5 for each)" in audit.headline.claim
        assert audit.headline.low > 1 and verify(audit).valid

    def test_a_person_on_both_sides_is_refused(self):
        ids = np.arange(60), np.arange(60)
        with pytest.raises(InputError, match="member and a non-member"):
            audit_synthetic(synthetic=table(60, 2), members=table(60), nonmembers=table(60, 1), groups=ids, run=HERE)


@pytest.fixture
def proven(monkeypatch):
    """What a call proves. The parts that no bound depends on are left out: most of the time goes there."""
    for module in (run, existing):
        monkeypatch.setattr(module, "assembled", lambda evidences, *rest: next(iter(evidences.values())))

    def prove(*given, delta=1e-5, **named):
        evidence = audit_synthetic(*given, delta=delta, run=HERE, **named)
        return proven_epsilon(evidence, delta=delta, confidence=0.95)

    return prove


class TestValidity:
    """The bound holds for generators whose ε is known, and says nothing where nothing leaks."""

    def test_what_is_proven_is_the_headline(self, copied, proven):
        assert proven(copier, mixed(), references=2, seed=1) == copied.headline.low

    @pytest.mark.once
    def test_randomised_response_is_never_charged_with_more_than_it_leaks(self, proven):
        # Record i is the word i. It is published with probability e^ε/(1+e^ε) if it was in and 1/(1+e^ε) if not.
        truth, size, audits = 1.0, 250, 24
        words = np.array([f"person {i}" for i in range(size)], object)[:, None]

        def respond(records, seed):
            rng = np.random.default_rng(seed)
            inside = np.isin(words[:, 0], records[:, 0])
            keep = 1 / (1 + np.exp(-truth))
            return words[rng.random(size) < np.where(inside, keep, 1 - keep)]

        lows = [proven(respond, words, references=2, delta=0.0, seed=s) for s in range(audits)]
        above = sum(low > truth for low in lows)
        assert stats.binom.sf(above - 1, audits, 0.05) > 1e-4
        assert np.median(lows) > 0.3

    @pytest.mark.once
    def test_a_generator_that_never_saw_the_members_proves_nothing(self, proven):
        audits, above = 30, 0
        for turn in range(audits):
            public = table(120, 900 + turn)
            above += proven(lambda r, s, p=public: p, table(160, turn), references=2, key="public") > 0
        assert stats.binom.sf(above - 1, audits, 0.05) > 1e-3

    def test_a_release_of_others_proves_nothing_about_a_random_split(self, proven):
        audits, above = 40, 0
        for turn in range(audits):
            pool, made = table(300, turn), table(150, 500 + turn)
            above += proven(synthetic=made, members=pool[:150], nonmembers=pool[150:], guard=False) > 0
        assert stats.binom.sf(above - 1, audits, 0.05) > 1e-3

    def test_scores_of_a_release_that_exists_do_not_know_the_sides(self):
        from dosimeter.audits.synthetic.comparison import alone
        from dosimeter.audits.synthetic.existing import joined
        from dosimeter.audits.synthetic.rows import read_real
        from dosimeter.audits.synthetic.space import fit_space

        a, b = (read_real(table(80, seed), "data")[0] for seed in (0, 1))
        found = [alone(fit_space(pool), pool, 1) for pool in (joined(a, b), joined(b, a))]
        assert np.allclose(found[0], np.concatenate([found[1][80:], found[1][:80]]))


class TestExistingRelease:
    def test_members_that_were_copied_are_found(self):
        data = mixed(600)
        audit = audit_synthetic(synthetic=data[:150], members=data[:300], nonmembers=data[300:], run=HERE)
        assert [e.neighbours for e in audit.estimates] == ["replace", "add/remove"]
        assert str(audit.headline.validity) == "finite-sample, random split"
        assert audit.headline.low > 2 and audit.guard.checked and not audit.guard.shift
        assert audit.details.copies.inside == 150 and audit.details.copies.outside == 0
        assert {group.value for group in audit.subgroups} == {"the most isolated tenth", "the others"}
        assert verify(audit).valid and Audit.from_json(audit.to_json()).to_dict() == audit.to_dict()

    def test_a_shift_is_announced(self):
        audit = audit_synthetic(synthetic=table(200, 2), members=table(200) + 1, nonmembers=table(200, 1), run=HERE)
        assert audit.guard.shift
        assert not passed(gate(audit, max_epsilon=100))

    def test_a_whole_copy_gives_the_top_value_and_a_warning(self):
        data = table(400)
        audit = audit_synthetic(synthetic=data[:200], members=data[:200], nonmembers=data[200:], run=HERE)
        assert audit.headline.low > 0.9 * audit.details.published.perfect
        assert "every published row is a copy of a member" in audit.metadata.warnings[0]

    @pytest.mark.parametrize("members", [20, 200])
    def test_a_table_of_few_values_is_not_taken_for_the_wrong_file(self, members):
        def coarse(rows, seed):
            return np.random.default_rng(seed).integers(0, 3, (rows, 2))

        audit = audit_synthetic(
            synthetic=coarse(90, 2), members=coarse(members, 0), nonmembers=coarse(200, 1), guard=False, run=HERE
        )
        assert audit.details.copies.outside == audit.details.copies.outside_of and audit.metadata.warnings == ()

    def test_files_are_read(self, tmp_path):
        data = mixed(300)
        paths = [tmp_path / name for name in ("real.csv", "held.csv", "made.csv")]
        for path, rows in zip(paths, (data[:150], data[150:], data[:80]), strict=True):
            rows.to_csv(path, index=False)
        audit = audit_synthetic(synthetic=paths[2], members=paths[0], nonmembers=str(paths[1]), run=HERE)
        assert audit.details.copies.inside == 80 and dict(audit.metadata.columns)["since"] == "date"


class TestOtherKinds:
    def test_images(self):
        images = np.random.default_rng(0).integers(0, 255, (200, 8, 8)).astype(np.uint8)
        audit = audit_synthetic(copier, images, references=2, seed=0, run=HERE)
        assert audit.headline.low > 2 and audit.details.copies.outside == 0

    def test_images_with_labels(self):
        images = np.random.default_rng(0).normal(size=(160, 6, 6))
        labels = np.arange(160) % 3
        audit = audit_synthetic(copier, (images, labels), references=2, seed=0, run=HERE)
        assert audit.headline.low > 2 and dict(audit.metadata.columns) == {"label": "number"}

    def test_texts(self):
        rng = np.random.default_rng(0)
        words = [f"w{k}" for k in range(200)]
        texts = [" ".join(rng.choice(words, 12)) for _ in range(200)]
        audit = audit_synthetic(copier, texts, references=2, seed=0, run=HERE)
        assert audit.headline.low > 2 and audit.metadata.columns == ()

    def test_pairs_of_a_table_and_labels(self):
        audit = audit_synthetic(copier, (table(), np.arange(RECORDS) % 2), references=2, seed=0, run=HERE)
        assert [name for name, _ in audit.metadata.columns] == ["0", "1", "2", "3", "label"]
        assert audit.details.criteria[-1].column == "label"


class TestBeside:
    def test_a_stated_guarantee(self):
        stated = Guarantee(0.5, 1e-5, "MST, as stated", "add/remove", "full batch", True)
        audit = audit_synthetic(blurred, table(), references=2, mechanism=stated, seed=0, run=HERE)
        assert audit.region is not None and audit.region.upper.epsilon == 0.5
        assert verify(audit).valid and "MST" in audit.metadata.mechanism

    def test_a_mechanism(self):
        audit = audit_synthetic(blurred, table(), references=2, mechanism=Gaussian(1.0), seed=0, run=HERE)
        assert {g.neighbours for g in audit.upper} == {"add/remove"}


class TestStore:
    @pytest.mark.once
    def test_finished_releases_are_not_made_again(self, tmp_path):
        kept = RunOptions(engine="inline", store=Store(tmp_path / "store"), progress=False)
        first, again = (audit_synthetic(copier, mixed(90), references=3, run=kept) for _ in range(2))
        assert (first.provenance.computed, again.provenance.computed, again.provenance.cached) == (4, 0, 4)
        assert first.metadata.seed == again.metadata.seed and first.estimates == again.estimates
        assert first.details == again.details

    def test_other_data_or_another_generator_have_other_keys(self, tmp_path):
        kept = RunOptions(engine="inline", store=Store(tmp_path / "store"), progress=False)
        audit_synthetic(blurred, table(60), references=0, seed=1, run=kept)
        assert audit_synthetic(blurred, table(60, 5), references=0, seed=1, run=kept).provenance.cached == 0
        assert audit_synthetic(copier, table(60), references=0, seed=1, run=kept).provenance.cached == 0
        assert audit_synthetic(copier, table(60), references=0, seed=1, run=kept).provenance.cached == 1

    def test_a_reference_that_fails_is_counted_and_the_others_go_on(self):
        calls = []

        def sometimes(records, seed):
            calls.append(seed)
            if len(set(calls)) == 3:
                raise RuntimeError("no convergence")
            return records

        audit = audit_synthetic(sometimes, table(), references=4, seed=1, run=HERE)
        assert audit.metadata.trainings.failed == 1 and "no convergence" in audit.metadata.failed[0].reason
        assert audit.headline.low > 1
        assert any("1 of 5" in v.reason for v in gate(audit, max_epsilon=100))

    def test_what_is_finished_is_kept_when_the_rest_fails(self, tmp_path):
        kept = RunOptions(engine="inline", store=Store(tmp_path / "store"), progress=False)
        broken = {"now": True}

        def fragile(records, seed):
            if broken["now"] and len(broken) > 1:
                raise RuntimeError("out of luck")
            broken[seed] = True
            return records

        with pytest.raises(InputError, match="reference releases worked"):
            audit_synthetic(fragile, table(), references=2, seed=1, run=kept, key="fragile")
        broken["now"] = False
        audit = audit_synthetic(fragile, table(), references=2, seed=1, run=kept, key="fragile")
        assert audit.provenance.cached == 1


def fails(records, seed):
    raise RuntimeError("diverged")


BAD = {
    "nothing": ({}, "pass generate and data, or synthetic, members and nonmembers"),
    "no holdout": ({"synthetic": table(20), "members": table(20)}, "cannot be audited without records"),
    "both ways": ({"generate": copier, "data": table(), "members": table()}, "neither synthetic"),
    "no generator": ({"generate": 3, "data": table()}, "must be a function"),
    "one argument": ({"generate": lambda records: records, "data": table()}, "must take"),
    "one row": ({"generate": copier, "data": table(1)}, "data holds 1 record"),
    "few rows": ({"generate": copier, "data": table(30), "audit_records": 3}, "too few"),
    "releases of next to nobody": ({"generate": copier, "data": table(7)}, "only 7 records have a coin.* at least 14"),
    "one reference": ({"generate": copier, "data": table(), "references": 1}, "references must be 0 or at least 2"),
    "rows of a function": ({"generate": copier, "data": table(), "rows": 5}, "rows=5 is for objects"),
    "too many coins": ({"generate": copier, "data": table(), "audit_records": 999}, "audit_records must be between"),
    "a mechanism": ({"generate": copier, "data": table(), "mechanism": "MST"}, "mechanism must be"),
    "unknown secret": ({"generate": copier, "data": table(), "secret": "income"}, "secret names 'income'"),
    "unknown target": ({"generate": copier, "data": table(), "target": "income"}, "target names 'income'"),
    "a generator that fails": ({"generate": fails, "data": table()}, "diverged"),
    "another width": ({"generate": lambda r, s: r[:, :2], "data": table()}, "2 columns and the records 4"),
    "one published row": ({"generate": lambda r, s: r[:1], "data": table()}, "holds 1 row"),
    "no published row": ({"generate": lambda r, s: r[:0], "data": table()}, "holds no row"),
    "nothing published": ({"generate": lambda r, s: None, "data": table()}, "generate failed"),
    "other columns": (
        {"synthetic": mixed(30).rename(columns={"age": "years"}), "members": mixed(30), "nonmembers": mixed(30, 1)},
        "synthetic lacks 'age' and has 'years', which the records lack",
    ),
    "more columns": (
        {"synthetic": mixed(30).assign(more=1), "members": mixed(30), "nonmembers": mixed(30, 1)},
        "has 'more', which the records lack",
    ),
    "other types": (
        {"synthetic": mixed(30).assign(age="old"), "members": mixed(30), "nonmembers": mixed(30, 1)},
        "column 'age' of synthetic holds 'old'",
    ),
    "another kind": (
        {"synthetic": ["a text", "b"], "members": table(30), "nonmembers": table(30, 1)},
        "synthetic holds texts",
    ),
    "the held-out records": (
        {"synthetic": table(30, 1), "members": table(30), "nonmembers": table(30, 1)},
        "every row of synthetic is one of nonmembers",
    ),
    "members held out": (
        {"synthetic": table(30, 2), "members": table(30), "nonmembers": table(30)},
        "the same records",
    ),
    "no values": ({"generate": copier, "data": np.full((20, 2), np.nan)}, "no column with a value"),
    "infinite": ({"generate": copier, "data": np.full((20, 2), np.inf)}, "infinite in row 0"),
    "an unknown option": ({"generate": copier, "data": table(), "colour": 1}, "takes no argument 'colour'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case):
    given, words = BAD[case]
    with pytest.raises(InputError, match=words) as refused:
        audit_synthetic(**given, **({"references": 2} if "references" not in given else {}), run=HERE)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)


def test_a_column_without_values_is_left_out_and_named():
    data = mixed().assign(empty=None)
    audit = audit_synthetic(copier, data, references=2, seed=1, run=HERE)
    assert "empty" not in dict(audit.metadata.columns)
    assert any("'empty' has no value at all" in note for note in audit.metadata.warnings)


def test_new_words_and_missing_values_of_a_generator_are_taken():
    def inventive(records, seed):
        made = records.copy()
        made.loc[0, "city"], made.loc[1, "age"] = "Atlantis", np.nan
        return made

    assert audit_synthetic(inventive, mixed(), references=2, seed=1, run=HERE).headline.low > 2
