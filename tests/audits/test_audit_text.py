"""Language models: sheets and their coins, scores by a slow second route, the bound, what was memorised."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError
from dosimeter.audits.gate import gate, passed
from dosimeter.audits.text.sheet import with_ids
from dosimeter.audits.verify import verify

torch = pytest.importorskip("torch", reason="language models need torch: dosimeter[torch]")
transformers = pytest.importorskip("transformers", reason="language models need transformers: dosimeter[text]")

from tiny_language import corpus, gpt2, llama, tokenizer, train  # noqa: E402

from dosimeter.audits.text import TextModel, memorised  # noqa: E402
from dosimeter.audits.text.scores import SCORES, score_of  # noqa: E402
from dosimeter.audits.text.subject import Asked  # noqa: E402

COUNT = 120
AT = {"length": 8, "prefix": 4}


@pytest.fixture(scope="module")
def coder():
    return tokenizer()


@pytest.fixture(scope="module")
def sheet(coder):
    return dm.canary_sheet(COUNT, like=corpus(200, seed=5), tokenizer=coder, seed=3, **AT)


@pytest.fixture(scope="module")
def base(coder):
    return train(gpt2(len(coder)), coder, corpus(200), steps=25)


@pytest.fixture(scope="module")
def tuned(base, coder, sheet):
    return train(copy.deepcopy(base), coder, sheet.training_texts(corpus(20, seed=9)), steps=60, rate=5e-3)


@pytest.fixture(scope="module")
def audit(tuned, coder, sheet, base):
    return dm.audit_canaries(tuned, coder, sheet, base=base, exposure=7, exposure_canaries=20)


# --- the sheet ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["suffix", "random", "names"])
def test_secrets_survive_and_differ(kind, coder):
    made = dm.canary_sheet(60, like=corpus(80, seed=1), tokenizer=coder, kind=kind, seed=1, **AT)
    assert len({canary.secret for canary in made}) == 60
    for canary in made:
        assert coder.decode(canary.ids) == canary.text
    sets = [set(canary.secret.split()) for canary in made]
    worst = max(len(a & b) / len(a | b) for i, a in enumerate(sets) for b in sets[:i])
    assert worst <= 0.5
    assert np.array_equal(made.included, dm.fair_coins(60, made.coin_seed))


def test_a_secret_is_so_many_tokens_of_the_vocabulary(sheet, coder):
    for canary in sheet:
        tail = [coder.decode([token]) for token in canary.ids[-8:]]
        assert "".join(tail) == canary.secret
        assert all(token.startswith(" ") for token in tail)


def test_the_same_seed_gives_the_same_sheet_and_another_one_other_coins(sheet, coder):
    again = dm.canary_sheet(COUNT, like=corpus(200, seed=5), tokenizer=coder, seed=3, **AT)
    assert again == sheet and again.hash == sheet.hash
    other = sheet.again()
    assert [c.text for c in other] == [c.text for c in sheet]
    assert other.mask_hash != sheet.mask_hash and other.hash != sheet.hash
    with pytest.raises(InputError, match="draws the coins of this sheet again"):
        sheet.again(sheet.coin_seed)


def test_without_a_tokenizer_words_are_those_of_the_texts():
    made = dm.canary_sheet(40, like=corpus(60), seed=0, **AT)
    known = {word for text in corpus(60) for word in text.split()}
    assert all(set(canary.secret.split()) <= known and not canary.ids for canary in made)


def test_a_sheet_comes_back_from_its_file(sheet, tmp_path):
    path = sheet.save(tmp_path / "sheet.jsonl")
    assert dm.CanarySheet.load(path) == sheet
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], lines[1].replace("true", "false").replace("false", "true", 1), *lines[2:]],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [lines[0], lines[1].replace(' "secret": " ', ' "secret": " x'), *lines[2:]],
        lambda lines: [*lines[:-1], json.dumps({"hash": "0" * 64})],
    ],
)
def test_a_changed_sheet_is_refused(sheet, tmp_path, change):
    path = sheet.save(tmp_path / "sheet.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = change(lines)
    assert changed != lines
    path.write_text("\n".join(changed) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="was changed: its hash"):
        dm.CanarySheet.load(path)


def test_coins_that_the_seed_does_not_draw_are_refused(sheet):
    first = replace(sheet.canaries[0], included=not sheet.canaries[0].included)
    with pytest.raises(InputError, match="not those that its seed draws"):
        replace(sheet, canaries=(first, *sheet.canaries[1:]))


def test_training_texts_are_the_rest_and_those_in_as_often_as_copies_say():
    made = dm.canary_sheet(30, like=corpus(60), copies=3, seed=2, **AT)
    texts = made.training_texts(["a text", made.canaries[0].text])
    assert texts[0] == "a text"
    assert sorted(texts[1:]) == sorted(c.text for c in made if c.included for _ in range(3))


def test_short_texts_get_shorter_prefixes_unless_a_length_is_asked_for():
    short = corpus(60, length=7)
    made = dm.canary_sheet(60, like=short, length=8, seed=1)
    assert {len(canary.prefix.split()) for canary in made} == {6}
    assert {len(canary.prefix.split()) for canary in dm.canary_sheet(60, like=corpus(60), length=8, seed=1)} == {24}
    with pytest.raises(InputError, match="different pieces of 24 words"):
        dm.canary_sheet(60, like=short, length=8, prefix=24, seed=1)
    with pytest.raises(InputError, match="different pieces of 3 words"):
        dm.canary_sheet(60, like=corpus(20, length=4), length=8, seed=1)


def test_records_that_stand_twice_are_counted():
    texts = corpus(30)
    with pytest.raises(InputError, match=r"2 texts of like repeat an earlier one: texts 3 and 30 are the same"):
        dm.canary_sheet(kind="records", like=[*texts, texts[3], texts[5]], seed=1)


def test_persons_share_a_coin():
    people = [f"p{n // 3}" for n in range(90)]
    made = dm.canary_sheet(like=corpus(90), kind="records", groups=people, seed=1)
    assert made.unit == "person"
    for name in set(people):
        assert len({c.included for c in made if c.group == name}) == 1
    assert made.mask_hash == dm.mask_hash(dm.fair_coins(30, made.coin_seed))
    some = dm.canary_sheet(10, like=corpus(90), kind="records", groups=people, seed=1)
    assert len(some) == 30 and len({c.group for c in some}) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"like": []}, "like is empty"),
        ({"like": ["a b c", "  "]}, r"like\[1\] is an empty text"),
        ({"like": ["a b c", 3]}, r"like\[1\] is 3, not a text"),
        ({"like": "one text"}, "like must be a list of texts"),
        ({"like": None}, "words of letters were found"),
        ({"like": corpus(5), "prefix": 20}, "like holds only 5 different pieces of 20 words"),
        ({"like": ["aaa bbb ccc ddd"] * 50, "prefix": 2}, "different words of letters"),
        ({"like": corpus(60), "kind": "poems"}, "kind"),
        ({"like": corpus(60), "length": 3}, "length"),
        ({"like": corpus(60), "copies": 0}, "copies"),
        ({"like": corpus(60), "count": 1}, "count"),
        ({"like": ["same text"] * 4, "kind": "records", "count": None}, "are the same, so their coins"),
        ({"like": corpus(10), "kind": "records", "count": 20}, "count=20, but like has 10 texts"),
        ({"like": None, "kind": "records"}, "needs your texts"),
    ],
)
def test_bad_sheets(options, message):
    with pytest.raises(InputError, match=message):
        dm.canary_sheet(**{"count": 40, "length": 8, "prefix": 4, "seed": 0} | options)


# --- scores ------------------------------------------------------------------------------------------------


class Padded(transformers.GPT2LMHeadModel):
    """A model whose vocabulary was filled up: two tokens have a logit of −∞."""

    def forward(self, *args, **options):
        found = super().forward(*args, **options)
        found.logits[..., -2:] = -float("inf")
        return found


@pytest.mark.parametrize("make", [gpt2, llama, lambda size, seed: Padded(gpt2(size + 2, seed).config)])
@pytest.mark.parametrize("kind", ["suffix", "random"])
def test_one_pass_equals_texts_one_by_one(make, kind, coder):
    sheet = dm.canary_sheet(COUNT, like=corpus(200, seed=5), tokenizer=coder, kind=kind, seed=3, **AT)
    models = [make(len(coder), seed=seed).eval() for seed in (0, 1)]
    asked = Asked.read(models[0], coder, models[1])
    texts = asked.encode(sheet)
    found = asked.passes(texts)
    for row in range(0, COUNT, 17):
        ids, (first, last) = texts.rows[row], texts.spans[row]
        with torch.no_grad():
            logs = [m(torch.tensor(ids[None])).logits[0].double().log_softmax(dim=1).numpy() for m in models]
        at = np.arange(first, last)
        for side, log in zip((found.target, found.base), logs, strict=True):
            before = np.maximum(log[at - 1], -1e9)
            p = np.exp(before)
            mean = (p * before).sum(axis=1)
            own = before[np.arange(at.size), ids[at]]
            assert side.log_probability[row] == pytest.approx(own, abs=1e-4)
            assert side.mean[row] == pytest.approx(mean, abs=1e-4)
            assert side.deviation[row] == pytest.approx(
                np.sqrt((p * (before - mean[:, None]) ** 2).sum(axis=1)), abs=1e-3
            )
            assert side.rank[row].tolist() == (before > own[:, None]).sum(axis=1).tolist()
        logs = [np.maximum(log[at - 1], -1e9) for log in logs]
        kl = (np.exp(logs[1]) * (logs[1] - logs[0])).sum(axis=1)
        assert found.divergence[row] == pytest.approx(kl, abs=1e-4)


def test_the_batch_changes_no_score(tuned, base, coder, sheet):
    one, many = (Asked.read(tuned, coder, base, batch_size=size) for size in (1, None))
    for a, b in zip(
        one.passes(one.encode(sheet)).target.log_probability, many.passes(many.encode(sheet)).target.log_probability,
        strict=True,
    ):  # fmt: skip
        assert a == pytest.approx(b, abs=1e-4)


def test_the_model_is_left_as_it_was(tuned, base, coder, sheet):
    tuned.train()
    asked = Asked.read(tuned, coder, base)
    asked.passes(asked.encode(sheet))
    assert tuned.training and not any(p.grad is not None and p.grad.any() for p in base.parameters() if p.grad is None)
    tuned.eval()


def test_every_score_is_high_for_canaries_that_are_in(tuned, base, coder, sheet):
    asked = Asked.read(tuned, coder, base)
    passes = asked.passes(asked.encode(sheet))
    for name in SCORES:
        scores = score_of(name, passes, [c.secret for c in sheet])
        auc = dm.Scores(scores[sheet.included], scores[~sheet.included]).auc
        assert auc > 0.6, name


# --- the audit ---------------------------------------------------------------------------------------------


def test_the_whole_way_proves_a_leak_and_follows_from_its_evidence(audit, sheet):
    assert audit.headline.low > 0.5
    assert audit.headline.neighbours == "add/remove" and str(audit.headline.validity) == "finite-sample"
    read = dm.Audit.from_json(audit.to_json())
    assert read == audit
    found = verify(read)
    assert found.valid and {f.subject for f in found.findings} >= {"lower-bound", "coins", "curve"}
    assert not passed(gate(read, max_epsilon=0.1))
    assert audit.metadata.sheet_hash == sheet.hash and audit.metadata.mask_hash == sheet.mask_hash
    assert audit.details.scores[0].headline and audit.details.scores[0].name == "ratio"
    assert audit.risk_table().num_rows == COUNT


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (lambda v: v["metadata"].__setitem__("mask_hash", "0" * 64), "coins"),
        (lambda v: v["metadata"]["seeds"].__setitem__("coins", 1), "coins"),
        (lambda v: v["estimates"][0]["details"]["bins"]["members"].reverse(), "lower-bound"),
    ],
)
def test_forged_audits_are_found(audit, change, subject):
    values = json.loads(audit.to_json())
    change(values)
    found = verify(dm.Audit.from_dict(values))
    assert subject in {f.subject for f in found.contradictions}


def test_copies_are_said_in_the_claim(tuned, base, coder, sheet):
    twice = replace(sheet, copies=4)
    audit = dm.audit_canaries(
        tuned, coder, twice, base=base, exposure=0, mechanism=dm.DpSgd(1.0, sample_rate=0.1, steps=10)
    )
    assert "one 4-record group" in audit.headline.claim
    assert any("trained on 4 times" in w for w in audit.headline.warnings)
    assert audit.region is None and audit.upper  # a guarantee for one record does not stand beside it
    assert verify(dm.Audit.from_json(audit.to_json())).valid


def test_persons_get_one_score_each(coder, base):
    people = [f"p{n // 2}" for n in range(160)]
    made = with_ids(dm.canary_sheet(like=corpus(160, seed=4), kind="records", groups=people, seed=1), coder)
    model = train(copy.deepcopy(base), coder, made.training_texts(), steps=10)
    audit = dm.audit_canaries(model, coder, made, base=base)
    assert audit.metadata.unit == "person" and audit.metadata.members + audit.metadata.nonmembers == 80
    assert "one person" in audit.headline.claim
    assert audit.details.exposure is None and audit.details.extraction is None
    assert all(row.text == "" for row in audit.details.at_risk), "records are shown only if asked for"
    assert verify(dm.Audit.from_json(audit.to_json())).valid
    shown = dm.audit_canaries(model, coder, made, base=base, show_records=True)
    assert all(row.text in corpus(160, seed=4) for row in shown.details.at_risk)


def test_a_guarantee_stands_beside_the_bound(tuned, base, coder, sheet):
    audit = dm.audit_canaries(
        tuned, coder, sheet, base=base, exposure=0, mechanism=dm.DpSgd(0.8, sample_rate=0.1, steps=100)
    )
    assert audit.region is not None and audit.region.upper.neighbours == "add/remove"

    class Engine:
        class accountant:  # noqa: N801
            history = [(0.8, 0.1, 60), (0.9, 0.1, 40)]  # noqa: RUF012

    other = dm.audit_canaries(tuned, coder, sheet, base=base, exposure=0, mechanism=Engine())
    assert other.metadata.mechanism.startswith("Composition")
    Engine.accountant.history = []
    with pytest.raises(InputError, match="has not counted a step"):
        dm.audit_canaries(tuned, coder, sheet, base=base, mechanism=Engine())
    with pytest.raises(InputError, match="mechanism must be the PrivacyEngine"):
        dm.audit_canaries(tuned, coder, sheet, base=base, mechanism=3)


def test_nothing_is_proven_where_nothing_was_seen(base, coder):
    """Sheets that the model never saw, at a level of 5 %: 11 or more of 80 above 0 come up once in 500 times."""
    other = train(copy.deepcopy(base), coder, corpus(40, seed=8), steps=10)
    asked = Asked.read(other, coder, base)
    from dosimeter.audits.text.run import Settings, evidence_of, headline

    above = 0
    for number in range(8):
        made = dm.canary_sheet(101, like=corpus(120, seed=6), tokenizer=coder, seed=100 + number, **AT)
        scores = score_of("ratio", asked.passes(asked.encode(made)), [c.secret for c in made])
        for draw in range(10):
            coins = made.again(1000 * number + draw)
            above += headline(evidence_of(coins, scores), coins, Settings()).low > 0
    assert above <= 10


@pytest.mark.parametrize("scores", [range(7), [0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0, 1]])
@pytest.mark.parametrize("texts", [1, 2])
def test_no_leak_at_seven_canaries_exactly(scores, texts):
    """All 128 ways in which 7 coins fall, for scores that know nothing of them: at most 5 % prove an ε above 0."""
    values = np.repeat(np.array(scores, float), texts)
    people = None if texts == 1 else [f"p{n // texts}" for n in range(values.size)]
    above = 0
    for number in range(1, 127):  # where all coins are the same, there is no audit
        coins = np.repeat((number >> np.arange(7)) & 1 == 1, texts)
        above += dm.lower_bound(dm.OneRun(values, coins, groups=people), delta=1e-5).low > 0
    assert above / 128 <= 0.05


def test_a_score_is_chosen_on_references_alone(tuned, base, coder, sheet):
    there = sheet.again(11)
    reference = train(copy.deepcopy(base), coder, there.training_texts(), steps=40, rate=5e-3)
    audit = dm.audit_canaries(tuned, coder, sheet, base=base, score="auto", references=[(reference, there)], exposure=0)
    assert audit.metadata.chosen == "chosen on 1 reference fine-tune(s), by AUC"
    with pytest.raises(InputError, match="has the coins of the audited sheet"):
        dm.audit_canaries(tuned, coder, sheet, base=base, score="auto", references=[(reference, sheet)])
    with pytest.raises(InputError, match="needs references"):
        dm.audit_canaries(tuned, coder, sheet, base=base, score="auto")
    with pytest.raises(InputError, match="references serve score='auto'"):
        dm.audit_canaries(tuned, coder, sheet, base=base, references=[(reference, there)])


def test_adapters_are_switched_off_for_the_base(base, coder, sheet):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(copy.deepcopy(base), config)
    train(adapted, coder, sheet.training_texts(), steps=15, rate=1e-2)
    asked = Asked.read(adapted, coder, None)
    assert asked.adapter
    off, apart = asked.passes(asked.encode(sheet)), Asked.read(adapted, coder, base)
    other = apart.passes(apart.encode(sheet))
    for a, b in zip(off.base.log_probability, other.base.log_probability, strict=True):
        assert a == pytest.approx(b, abs=1e-5)
    audit = dm.audit_canaries(adapted, coder, sheet, exposure=0)
    assert audit.metadata.base == "the model with its adapters off"
    adapted.peft_config["default"].bias = "all"
    with pytest.raises(InputError, match="does not give the base model back"):
        dm.audit_canaries(adapted, coder, sheet, exposure=0)


def test_audit_model_takes_scores_of_texts(coder, base):
    """Members and held-out texts of one kind: the ratio to the base finds more than the loss."""
    texts = corpus(200, seed=31, length=12)
    model = train(copy.deepcopy(base), coder, texts[:100], steps=80, rate=5e-3)
    found = {}
    for score in ("ratio", "loss"):
        box = TextModel(model, coder, base=base, score=score)
        found[score] = dm.audit_model(box, members=texts[:100], nonmembers=texts[100:], guard=False).curve.auc
    assert found["ratio"] > 0.7 and found["ratio"] > found["loss"] - 0.05
    with pytest.raises(InputError, match="X must be a list of texts"):
        TextModel(model, coder, base=base).losses([1, 2])
    with pytest.raises(InputError, match="compares with the base model"):
        TextModel(model, coder)


# --- what was memorised ------------------------------------------------------------------------------------


@pytest.mark.parametrize("references", [1, 15, 63, 999])
def test_exposure_of_secrets_never_seen_is_not_0_bits(references):
    """The mean of log₂(n + 1) − log₂ rank over uniform ranks: 0.5 for n = 1, 1.38 for 63, 1.44 for many."""
    rng = np.random.default_rng(0)
    found = memorised.exposures(rng.normal(size=4000), rng.normal(size=(4000, references)))
    exact = np.mean([math.log2(references + 1) - math.log2(rank) for rank in range(1, references + 2)])
    assert memorised.null_bits(references) == pytest.approx(exact, abs=1e-9)
    assert found.mean() == pytest.approx(exact, abs=0.1)
    assert exact < memorised.null_bits(10**9) == pytest.approx(1 / math.log(2), abs=1e-6)
    assert found.min() == 0.0 and found.max() <= math.log2(references + 1)
    tied = memorised.exposures(np.zeros(3), np.zeros((3, references)))
    assert tied.tolist() == [0.0, 0.0, 0.0]


def test_exposure_rises_for_canaries_that_are_in(audit):
    found = audit.details.exposure
    assert found.cap == 3.0 and found.references == 7
    assert found.target.mean_inside > found.target.mean_outside
    assert found.target.inside == found.target.outside == 10


def test_tries_stay_in_logarithms():
    rates = np.log(np.array([0.5, 0.9, 1e-3]))
    exact = [math.log(math.log(0.5) / math.log1p(-math.exp(rate))) for rate in rates]
    assert memorised.tries_needed(rates) == pytest.approx(exact)
    far = memorised.tries_needed(np.array([-1000.0]))
    assert far == pytest.approx([math.log(math.log(2)) + 1000.0])
    assert memorised.tries_needed(np.array([0.0]))[0] == -math.inf


def test_greedy_is_what_generation_writes(coder):
    """A model that knows two canaries by heart writes their secrets; the passes say so without generating."""
    made = dm.canary_sheet(30, like=corpus(60), tokenizer=coder, seed=5, **AT)
    model = train(gpt2(len(coder), width=64), coder, made.training_texts(), steps=150, rate=5e-3)
    asked = Asked.read(model, coder, None)
    texts = asked.encode(made)
    passes = asked.passes(texts)
    said = memorised.greedy(passes.target)
    assert said[made.included].any() and not said[~made.included].any()
    for row in range(len(made)):
        first, last = texts.spans[row]
        ids = torch.tensor(texts.rows[row][None, :first])
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=int(last - first), pad_token_id=0
        )[0, first:].tolist()
        assert (written == texts.rows[row][first:last].tolist()) == said[row]
    rows = memorised.extraction(made, passes).rows
    assert rows[0].tries == "greedy" and rows[0].inside == int(said.sum())
    assert [row.inside for row in rows[1:]] == sorted(row.inside for row in rows[1:])


def test_a_base_that_knows_the_canaries_is_warned_about(tuned, coder, sheet, base):
    audit = dm.audit_canaries(base, coder, sheet, base=tuned, exposure=31, exposure_canaries=120)
    assert any("base model already knows" in w for w in audit.metadata.warnings)


# --- bad input ---------------------------------------------------------------------------------------------


def test_models_of_other_kinds_are_refused(coder, sheet, base):
    def refused(model, message, **options):
        with pytest.raises(InputError, match=message):
            dm.audit_canaries(model, coder, sheet, **{"base": base} | options)

    bare = transformers.GPT2Model(base.config)
    refused(bare, "gives no logits of next tokens")
    t5 = transformers.T5Config(
        vocab_size=len(coder), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    refused(transformers.T5ForConditionalGeneration(t5), "turns one sequence into another")
    refused(transformers.GPT2ForSequenceClassification(base.config), "a classifier; audit it with audit_model")
    refused("a folder", "must be a causal language model")
    refused(gpt2(len(coder) + 1), "vocabulary of 901 tokens and base one of 900")
    refused(gpt2(50), "does not fit the model", base=gpt2(50))
    refused(gpt2(len(coder), positions=8), "it would be cut")
    refused(base, "compares with the base model, which is missing", base=None)
    refused(gpt2(len(coder)), "score must be one of", score="magic")
    refused(base, "expected_hash is 'abc'", expected_hash="abc")
    nan = copy.deepcopy(base)
    with torch.no_grad():
        nan.transformer.wte.weight[:] = float("nan")
    refused(nan, "NaN or infinite")


def test_another_tokenizer_is_refused(sheet, base, tuned):
    other = tokenizer(corpus(50, seed=77), size=400)
    with pytest.raises(InputError, match="other tokens than the sheet holds"):
        dm.audit_canaries(tuned, other, sheet, base=base)
    with pytest.raises(InputError, match="tokenizer must be"):
        dm.audit_canaries(tuned, "gpt2", sheet, base=base)


def test_too_few_canaries_are_refused_before_anything_is_scored(coder, base, tuned):
    few = dm.canary_sheet(4, like=corpus(30), tokenizer=coder, seed=3, **AT)
    with pytest.raises(InputError, match=r"4 canaries are too few.*make a sheet with more"):
        dm.audit_canaries(tuned, coder, few, base=base)
    people = ["a", "b", "c"] * 20
    few = dm.canary_sheet(60, like=corpus(60), tokenizer=coder, seed=3, groups=people, **AT)
    with pytest.raises(InputError, match="3 persons are too few"):
        dm.DosimeterCallback(few)


def test_a_model_is_not_its_own_base(tuned, base, coder, sheet):
    """`base=model` after a training in place: every score would be 0, and a leak would look like none."""
    with pytest.raises(InputError, match="base is the model itself"):
        dm.audit_canaries(tuned, coder, sheet, base=tuned)
    audit = dm.audit_canaries(tuned, coder, sheet, base=copy.deepcopy(tuned), exposure=0)
    assert any("answers exactly as its base" in w for w in audit.metadata.warnings)
    other = dm.audit_canaries(tuned, coder, sheet, base=base, exposure=0)
    assert not any("answers exactly" in w for w in other.metadata.warnings)


def test_a_sheet_from_a_file_with_its_hash(tuned, base, coder, sheet, tmp_path):
    path = sheet.save(tmp_path / "sheet.jsonl")
    for known in (sheet.hash, sheet.mask_hash):
        dm.audit_canaries(tuned, coder, path, base=base, exposure=0, expected_hash=known)
    with pytest.raises(InputError, match="sheet must be a CanarySheet"):
        dm.audit_canaries(tuned, coder, 5, base=base)


def test_the_page_shows_it_all_and_escapes(audit, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    page = tmp_path / "page.html"
    hostile = replace(audit.details.at_risk[0], text="<script>alert(1)</script>")
    replace(audit, details=replace(audit.details, at_risk=(hostile,))).to_html(page)
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    for heading in ("How the audit was run", "What was memorised", "The scores side by side", "texts most at risk"):
        assert heading in text
