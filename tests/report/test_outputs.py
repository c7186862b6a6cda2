"""Where an audit goes after the call: notebooks, tables, model cards, experiment trackers."""

import json
import math
import re
import sys
from html.parser import HTMLParser

import pytest
import samples

import dosimeter as dm
from dosimeter._validate import InputError
from dosimeter.audits.page.write import charts
from dosimeter.audits.result import Audit

pytest.importorskip("altair", reason="the extra 'report' is not installed")

SAMPLES = {"bare": samples.bare, "full": samples.full, "shifted": samples.shifted, "hostile": samples.hostile}


@pytest.fixture(params=SAMPLES)
def audit(request):
    return SAMPLES[request.param]()


def test_json_and_markdown_go_into_a_file_as_well(audit, tmp_path):
    text, table = audit.to_json(tmp_path / "audit.json"), audit.to_markdown(str(tmp_path / "audit.md"))
    assert text == audit.to_json() and table == audit.to_markdown()
    assert Audit.from_json((tmp_path / "audit.json").read_bytes()).to_json() == text
    assert (tmp_path / "audit.md").read_text(encoding="utf-8") == table
    with pytest.raises(OSError, match=r"audit\.json"):
        audit.to_json(tmp_path / "nowhere" / "audit.json")


class Balanced(HTMLParser):
    """Counts what is open; the card's own tags are all closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def well_formed(html):
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert not {"script", "img", "link", "iframe", "style"} & set(parser.seen)
    assert not re.search(r"https?://|\son\w+=", html)
    return html


class TestNotebook:
    def test_the_card_of_an_audit(self, audit):
        html = well_formed(audit._repr_html_())
        assert "<svg" in html
        for estimate in audit.estimates:
            assert estimate.method in html
        first = html.index(str(audit.guard)[:20])
        assert (first < html.index("ε ")) == audit.guard.shift, "a shift is told before any number"

    def test_the_card_has_the_guarantee_beside_the_bound(self):
        audit = samples.full()
        html = audit._repr_html_()
        assert audit.region is not None
        assert f"excluded by the guarantee: ε above {audit.region.upper.epsilon:.4g}" in html

    def test_cards_of_estimates_and_guarantees(self, audit):
        for one in (*audit.estimates, *audit.upper):
            html = well_formed(one._repr_html_())
            assert "<svg" in html

    @pytest.mark.parametrize("epsilon", [0.0, 1.5, math.inf])
    def test_cards_at_the_ends(self, epsilon):
        guarantee = dm.Guarantee(epsilon, 1e-5, "pld", "add/remove", "poisson", True)
        assert "nan" not in well_formed(guarantee._repr_html_())
        assert "inf" not in guarantee._repr_html_().replace("infinite", "")

    def test_a_short_repr(self, audit):
        for one in (audit, *audit.estimates, *audit.upper):
            assert "\n" not in repr(one)
            assert len(repr(one)) < 260
            assert "ε" in repr(one)
        assert repr(audit).startswith("Audit(ε ")
        assert f"ε ≥ {audit.headline.low:.4g}" in repr(audit)

    def test_only_bounds_are_written_as_such(self, audit):
        for estimate in audit.estimates:
            plain = "ε ≥" in repr(estimate) and f"({estimate.validity}), δ" not in repr(estimate)
            assert plain == (estimate.validity.is_bound and math.isinf(estimate.high))

    def test_the_table(self, audit):
        frame = audit.to_frame()
        assert frame["method"].tolist() == [e.method for e in audit.estimates] + [g.method for g in audit.upper]
        assert frame["epsilon"].tolist()[0] == audit.headline.epsilon
        assert frame["is_bound"].tolist()[: len(audit.estimates)] == [e.validity.is_bound for e in audit.estimates]
        assert set(frame["kind"]) <= {"estimate", "guarantee"}

    @pytest.mark.slow
    @pytest.mark.parametrize("audit", ["bare", "hostile"], indirect=True)  # few charts, and all with any text
    def test_every_chart_of_the_page_can_be_drawn_alone(self, audit):
        page = charts(audit)
        names = tuple(page)
        assert audit.plots == names and names
        for name, expected in page.items():
            drawn = audit.plot(name).to_dict()
            assert {key: drawn[key] for key in expected if key != "config"} == {
                key: value for key, value in expected.items() if key != "config"
            }
            assert drawn["config"]["font"] == expected["config"]["font"]
        assert audit.plot().to_dict() == audit.plot(names[0]).to_dict()
        with pytest.raises(InputError, match=rf"no-such.*{names[0]}"):
            audit.plot("no-such")

    @pytest.mark.parametrize(("missing", "extra"), [("altair", "report"), ("pandas", "notebook")])
    def test_without_the_extra(self, monkeypatch, missing, extra):
        monkeypatch.setitem(sys.modules, missing, None)
        audit = samples.bare()
        call = audit.to_frame if missing == "pandas" else audit.plot
        with pytest.raises(ImportError, match=rf"Audit\..*{missing}.*\[{extra}\]"):
            call()
        assert "<svg" in audit._repr_html_(), "the card needs no package"


class TestMarkdown:
    def test_it_says_what_the_audit_says(self, audit):
        text = audit.to_markdown()
        plain = re.sub(r"\\(.)", r"\1", text)
        assert " ".join(audit.headline.claim.split()) in plain
        assert str(audit.headline.validity) in text
        assert (plain.index(str(audit.guard)[:20])) < plain.index("ε")
        for line in text.splitlines():
            assert "<script" not in line

    def test_tables_are_tables(self, audit):
        lines = [line for line in audit.to_markdown().splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert widths <= {4, 5}
        assert len(lines) >= len(audit.estimates) + 2

    def test_a_model_card_that_the_hub_reads(self, audit):
        hub = pytest.importorskip("huggingface_hub")
        card = hub.ModelCard(
            audit.to_model_card('clinic: "a"\n---', dataset="clinic data", task="tabular-classification")
        )
        results = card.data.eval_results
        assert len({r.metric_type for r in results}) == len(results)
        headline = next(
            r for r in results if r.metric_type == f"epsilon_{audit.headline.method.replace('-', '_')}_replace"
        )
        assert headline.metric_value == audit.headline.epsilon
        assert "at least" in headline.metric_name
        assert card.data.model_name == 'clinic: "a"\n---'
        assert card.text.strip().startswith("## Privacy audit")

    def test_names_must_be_there(self):
        with pytest.raises(InputError, match="dataset is empty"):
            samples.bare().to_model_card("m", dataset=" ")


class TestMlflow:
    @pytest.fixture
    def mlflow(self, tmp_path, monkeypatch):
        found = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
        before = found.get_tracking_uri()
        found.set_tracking_uri((tmp_path / "runs").as_uri())
        yield found
        while found.active_run() is not None:
            found.end_run()
        found.set_tracking_uri(before)

    def read(self, mlflow, run_id, tmp_path):
        run = mlflow.get_run(run_id)
        files = mlflow.artifacts.download_artifacts(run_id=run_id, dst_path=str(tmp_path / "down"))
        return run.data, tmp_path / "down", files

    @pytest.mark.once
    def test_a_new_run(self, mlflow, tmp_path):
        audit = samples.full()
        run_id = audit.log_to_mlflow()
        assert mlflow.active_run() is None
        data, folder, _ = self.read(mlflow, run_id, tmp_path)
        assert data.metrics["privacy.epsilon_low"] == audit.headline.low
        assert data.metrics["privacy.epsilon_high"] == audit.region.upper.epsilon
        assert data.metrics["privacy.auc"] == audit.curve.auc
        for estimate in audit.estimates[:2]:
            whose = estimate.neighbours.replace("/", "_")
            assert data.metrics[f"privacy.estimates.lower_bound_{whose}"] == estimate.epsilon
        assert data.metrics["privacy.shift"] == 0
        assert data.tags["privacy.claim"] == audit.headline.claim
        assert data.tags["privacy.neighbours"] == audit.headline.neighbours
        stored = (folder / "privacy" / "audit.json").read_text(encoding="utf-8")
        assert Audit.from_json(stored).to_dict() == audit.to_dict()
        assert (folder / "privacy" / "audit.html").stat().st_size > 10_000

    def test_the_active_run_and_two_audits_in_it(self, mlflow, tmp_path):
        with mlflow.start_run() as run:
            assert samples.full().log_to_mlflow(prefix="before", page=False) == run.info.run_id
            assert samples.bare().log_to_mlflow(prefix="after", page=False) == run.info.run_id
            assert mlflow.active_run().info.run_id == run.info.run_id
        data, folder, _ = self.read(mlflow, run.info.run_id, tmp_path)
        assert data.metrics["before.epsilon_low"] == samples.full().headline.low
        assert data.metrics["after.epsilon_low"] == samples.bare().headline.low
        assert not (folder / "after" / "audit.html").exists()

    def test_a_run_by_its_id(self, mlflow, tmp_path):
        with mlflow.start_run() as run:
            pass
        with mlflow.start_run() as other:
            assert samples.bare().log_to_mlflow(run_id=run.info.run_id, page=False) == run.info.run_id
            assert mlflow.active_run().info.run_id == other.info.run_id
        assert "privacy.epsilon_low" in mlflow.get_run(run.info.run_id).data.metrics
        assert mlflow.get_run(other.info.run_id).data.metrics == {}

    def test_nothing_is_logged_if_the_page_cannot_be_made(self, mlflow, monkeypatch):
        monkeypatch.setitem(sys.modules, "vl_convert", None)
        with mlflow.start_run() as run, pytest.raises(ImportError, match="report"):
            samples.bare().log_to_mlflow()
        assert mlflow.get_run(run.info.run_id).data.metrics == {}


def test_mlflow_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"log_to_mlflow needs mlflow.*\[mlflow\]"):
        samples.bare().log_to_mlflow()


class TestWandb:
    @pytest.fixture
    def wandb(self, tmp_path, monkeypatch):
        found = pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_SILENT", "true")
        monkeypatch.setenv("WANDB_DIR", str(tmp_path))
        monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
        monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path))
        monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        return found

    @pytest.mark.once
    def test_offline(self, wandb, tmp_path):
        audit = samples.full()
        with pytest.raises(InputError, match=r"wandb\.init"):
            audit.log_to_wandb()
        with wandb.init(project="audits") as run:
            audit.log_to_wandb()
            assert run.summary["privacy.epsilon_low"] == audit.headline.low
            assert run.summary["privacy.claim"] == audit.headline.claim
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.suffix == ".wandb" and path.stat().st_size > 0 for path in kept)
        stored = [text for path in kept if (text := path.read_bytes()).startswith(b'{"schema"')]
        assert stored and json.loads(stored[0]) == audit.to_dict()


def test_wandb_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"log_to_wandb needs wandb.*\[wandb\]"):
        samples.bare().log_to_wandb()
