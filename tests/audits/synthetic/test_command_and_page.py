"""The command and the page of an audit of a synthetic data set."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dosimeter import RunOptions, cli
from dosimeter.audits.result import Audit
from dosimeter.audits.synthetic import audit_synthetic
from dosimeter.audits.verify import verify

HERE = RunOptions(engine="inline", progress=False)


def rows(count, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "person": [f"p{seed}-{i // 2}" for i in range(count)],
            "size": rng.normal(size=count).round(5),
            "<b>town</b>": rng.choice(["Bern", "Chur & Co", "<script>alert(1)</script>"], count),
            "ill": rng.choice(["yes", "no"], count),
        }
    )


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real, held = rows(200, 0), rows(200, 1)
    real.to_csv("real.csv", index=False)
    held.to_csv("holdout.csv", index=False)
    real[:120].to_csv("synthetic.csv", index=False)
    return tmp_path


@pytest.fixture
def command(files, capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dosimeter", "audit-synthetic", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return run


ALL = ("real.csv", "synthetic.csv", "--holdout", "holdout.csv")


class TestCommand:
    def test_people_see_the_claim_the_ceiling_the_copies_and_the_utility(self, command):
        code, out, _ = command(*ALL, "--html", "page.html", "--records", "risk.csv")
        assert code == 0
        for words in ("replacing one record", "perfect attack", "exact copies", "singling out", "column shapes"):
            assert words in " ".join(out.split())
        assert "<html" in Path("page.html").read_text(encoding="utf-8")
        assert len(pd.read_csv("risk.csv")) == 400

    def test_a_criterion_without_a_number_is_named(self, command):
        twice = pd.read_csv("synthetic.csv")
        pd.concat([twice, twice]).to_csv("synthetic.csv", index=False)  # no query finds one row alone
        code, out, _ = command(*ALL, "--group", "person")
        assert code == 0 and "linkability" in out and "A perfect attack on as many persons" in out
        assert "singling out: nothing can be stated" in out and "linkability: nothing" not in out

    def test_json_is_a_valid_audit(self, command):
        code, out, _ = command(
            *ALL, "--json", "--group", "person", "--secret", "ill", "--secret", "size", "--target", "ill"
        )
        audit = Audit.from_dict(json.loads(out))
        assert code == 0 and verify(audit).valid
        assert audit.metadata.unit == "person" and audit.metadata.members == 100
        assert [c.column for c in audit.details.criteria if c.column] == ["ill", "size"]
        assert "person" not in dict(audit.metadata.columns)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (ALL[:2], "--holdout is missing"),
            (("real.csv", "real.csv", "--holdout", "holdout.csv"), "is given twice"),
            (("real.csv", "synthetic.csv", "--holdout", "real.csv"), "is given twice"),
            ((*ALL, "--group", "nobody"), "has no column 'nobody'"),
            ((*ALL, "--secret", "nothing"), "secret names 'nothing'"),
            (("none.csv", *ALL[1:]), "does not exist"),
            ((*ALL, "--delta", "2"), "delta must be"),
        ],
    )
    def test_bad_input_is_one_line(self, command, words, said):
        code, _, err = command(*words)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    data = rows(300, 0).drop(columns="person")
    audits = {
        "coins": audit_synthetic(lambda r, s: r, data, references=2, seed=0, run=HERE),
        "split": audit_synthetic(
            synthetic=pd.concat([data[:60], data[:60]]), members=data[:150], nonmembers=data[150:], run=HERE
        ),
    }
    texts = {}
    for name, audit in audits.items():
        audit.to_html(folder / f"{name}.html")
        texts[name] = (folder / f"{name}.html").read_text(encoding="utf-8")
    return audits, texts


class TestPage:
    @pytest.mark.parametrize(
        ("kind", "sections"),
        [
            ("coins", ["release", "attacks", "copies", "utility", "criteria"]),
            ("split", ["release", "copies", "utility", "criteria"]),
        ],
    )
    def test_the_sections_are_there(self, pages, kind, sections):
        for name in sections:
            assert f'<section id="{name}"' in pages[1][kind]
        assert 'data-chart="disclosure"' in pages[1][kind]

    def test_a_criterion_without_a_number_is_named(self, pages):
        texts = pages[1]  # in the split every row is published twice: no query finds one alone
        assert "singling out: nothing can be stated" in texts["split"] and "linkability: nothing" not in texts["split"]
        assert "nothing can be stated" not in texts["coins"]

    def test_it_says_how_the_audit_was_made(self, pages):
        audits, texts = pages
        assert audits["coins"].metadata.mask_hash in texts["coins"] and "coins said in" in texts["coins"]
        assert "random split" in texts["split"] and "replacing one record" in texts["split"]
        for name, audit in audits.items():
            assert f"{audit.details.published.perfect:.4g}" in texts[name]
            assert "Sensitive" in texts[name] and "No number here is a legal verdict" in texts[name]

    def test_the_next_steps_are_those_of_a_generator(self, pages):
        for text in pages[1].values():
            assert "what this generator gives out" in text and "Guaranteed by the generator" in text
            assert "Use a generator with differential privacy" in text and "Poisson batches" not in text

    def test_names_of_columns_cannot_run(self, pages):
        for text in pages[1].values():
            assert "<b>town</b>" not in text and "<script>alert" not in text

    def test_a_page_from_the_file_is_the_same(self, pages, tmp_path):
        audits, texts = pages
        Audit.from_json(audits["coins"].to_json()).to_html(tmp_path / "again.html")
        assert (tmp_path / "again.html").read_text(encoding="utf-8") == texts["coins"]
