"""The page: whole, safe, small, and honest in its order."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import altair
import numpy as np
import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st

from dosimeter._validate import InputError
from dosimeter.audits import page as audit_page
from dosimeter.audits.page import facts
from dosimeter.audits.page.appendix import FIELDS, MEANING, star_line
from dosimeter.audits.page.evidence import roc_lines
from dosimeter.audits.page.write import BESIDE
from dosimeter.audits.result import Audit, Metadata, Risk, StarCurve
from dosimeter.audits.scores import audit_scores
from dosimeter.estimate import Validity
from dosimeter.evidence import Scores
from dosimeter.report.canvas import VARIABLES
from dosimeter.report.markup import esc, json_block, share

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Outline(HTMLParser):
    """Elements, attributes and texts of a page, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.stack, f"left open: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.stack[-1] if self.stack else "", data))

    def text(self, *skip: str) -> str:
        return "".join(data for tag, data in self.texts if tag not in {"script", "style", *skip})

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    audits = {
        "full": samples.full(),
        "bare": samples.bare(),
        "shifted": samples.shifted(),
        "hostile": samples.hostile(),
        "again": Audit.from_json(samples.full().to_json()),
    }
    return {name: audit_page.to_html(audit) for name, audit in audits.items()}


@pytest.mark.parametrize("name", ["full", "bare", "shifted", "hostile", "again"])
def test_page_is_well_formed_and_loads_nothing(pages: dict[str, str], name: str) -> None:
    page = Outline(pages[name])
    for tag, attrs in page.elements:
        assert tag in {
            *[
                "html",
                "head",
                "meta",
                "title",
                "style",
                "body",
                "a",
                "header",
                "h1",
                "p",
                "main",
                "section",
                "h2",
                "h3",
                "div",
                "dl",
                "dt",
                "dd",
                "nav",
                "ol",
                "ul",
                "li",
            ]
        } | {
            *[
                "figure",
                "figcaption",
                "strong",
                "svg",
                "g",
                "path",
                "rect",
                "line",
                "text",
                "details",
                "summary",
                "table",
                "caption",
                "span",
                "thead",
                "tbody",
            ]
        } | {"tr", "th", "td", "footer", "script", "code", "tspan"}, tag
        for attribute, value in attrs.items():
            assert not attribute.startswith("on") and attribute not in ("style", "src", "srcdoc", "action")
            if attribute in ("href", "xlink:href"):
                assert value is not None and value.startswith(("#", "data:application/json;base64,"))
            assert "url(" not in (value or "")
    without_names = pages[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"(?:https?:)?//[a-z]", re.sub(r"<script>.*?</script>", "", without_names, flags=re.S))
    assert "@import" not in pages[name] and "url(" not in pages[name]
    assert len(pages[name].encode()) < 1_500_000
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_policy_allows_only_the_script_and_the_style_of_the_page(pages: dict[str, str]) -> None:
    page = pages["full"]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "unsafe" not in policy[1] and "default-src 'none'" in policy[1]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        allowed = re.search(rf"{directive} ([^;]*)", policy[1])
        assert allowed is not None and allowed[1].strip() == f"'sha256-{digest}'"
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")


def test_hostile_names_are_shown_as_text(pages: dict[str, str]) -> None:
    page = Outline(pages["hostile"])
    kinds = [attrs.get("type") for attrs in page.all("script")]
    assert kinds == ["application/json", None]
    assert not page.all("img")
    shown = page.text()
    assert samples.HOSTILE in shown and "onerror=alert(1)" in shown
    assert "\x00" not in pages["hostile"] and "x" * 401 not in pages["hostile"]
    data = next(text for tag, text in page.texts if tag == "script" and text.startswith("{"))
    assert any(samples.HOSTILE in point[2] for point in json.loads(data)["subgroups"]["wide"])
    pages["hostile"].encode("utf-8")


@given(st.text())
def test_any_text_survives_escaping(text: str) -> None:
    assert "<" not in esc(text) and '"' not in esc(text)
    block = json_block("a", {"t": [text]})
    inner = block[len('<script type="application/json" id="a">') : -len("</script>")]
    assert not re.search("[<>&\u2028\u2029]", inner)
    assert json.loads(inner) == {"t": [text]}


def test_sections_stand_in_order_and_headings_too(pages: dict[str, str]) -> None:
    page = Outline(pages["full"])
    names = [attrs["id"] for attrs in page.all("section")]
    assert names == (
        [
            "verdict",
            "evidence",
            "roc",
            "calibration",
            "person",
            "subgroups",
            "exposed",
            "limits",
            "distributions",
            "star",
            "numbers",
            "method",
            "nist",
            "data",
            "words",
        ]
    )
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    links = {(attrs["href"] or "")[1:] for attrs in page.all("a")}
    assert set(names) < links and "main" in links


def test_guard_stands_above_every_epsilon(pages: dict[str, str]) -> None:
    for name, first in (("full", "look alike"), ("bare", "Not checked"), ("shifted", "Warning: members")):
        shown = Outline(pages[name]).text("title")
        assert shown.index(first) < shown.index("ε")
    assert 'class="guard shift" role="alert"' in pages["shifted"]
    assert pages["full"].count('role="alert"') == 0
    assert pages["shifted"].index("guard shift") < pages["shifted"].index('class="cards"')


def test_every_number_has_validity_and_claim(pages: dict[str, str]) -> None:
    shown = Outline(pages["full"]).text()
    for estimate in samples.full().estimates:
        assert estimate.claim in shown and estimate.validity in shown and estimate.method in shown
    for guarantee in samples.full().upper:
        assert guarantee.method in shown
    assert set(MEANING) == set(Validity)


def test_every_chart_has_a_text_alternative_and_tables_have_heads(pages: dict[str, str]) -> None:
    page = Outline(pages["full"])
    assert len(page.all("figure")) == 6
    ids = {attrs.get("id") for attrs in page.all("figcaption")}
    assert {attrs["aria-labelledby"] for attrs in page.all("figure")} == ids
    assert all(attrs.get("aria-hidden") == "true" for attrs in page.all("svg"))
    assert len(page.all("svg")) == 12
    assert len(page.all("caption")) == len(page.all("table")) > 5
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.all("th"))
    caption = re.search(r'id="roc-caption">(.*?)</figcaption>', pages["full"])
    assert caption is not None and f"{samples.full().curve.auc:.4g}" in caption[1]


def test_bare_audit_leaves_sections_out_and_says_not_stated(pages: dict[str, str]) -> None:
    page = Outline(pages["bare"])
    names = [attrs["id"] for attrs in page.all("section")]
    assert names == ["verdict", "evidence", "roc", "person", "limits", "numbers", "method", "nist", "data", "words"]
    shown = page.text()
    assert shown.count("not stated") == len(FIELDS)  # the guarantee, and every field but the unit
    for act in ("replacing", "adding or removing"):
        assert f"No guarantee for {act} one record was given, so nothing bounds this ε from above" in shown


def test_nist_fields_are_filled_from_metadata_and_guarantee(pages: dict[str, str]) -> None:
    part = pages["full"][pages["full"].index('id="nist"') :]
    assert "one record" in part and "add/remove" in part and "poisson" in part and "norm 1.0" in part
    assert f"Stated to the audit: 6 of {len(FIELDS)}." in part


def test_a_page_read_back_from_json_is_the_same(pages: dict[str, str]) -> None:
    assert pages["again"] == pages["full"]


def test_bounds_of_groups_are_said_to_hold_together(pages: dict[str, str]) -> None:
    audit = samples.full()
    assert f"The largest bound is ε ≥ {audit.subgroups[0].epsilon:.4g} for age = under 25" in pages["full"]
    assert "All 4 bounds hold at once with 95 % confidence." in pages["full"]
    alone = audit_page.to_html(samples.without_limits())
    assert "hold at once" not in alone and "the largest of them need not hold" in alone


def test_a_limit_of_the_tpr_is_shown_only_where_one_holds(pages: dict[str, str]) -> None:
    audit = samples.bare()
    point = facts.tpr_at(audit, 0.01)
    assert point is not None
    limit = share(point.tpr_low).replace("\u00a0", " ")
    assert f"truly at least {limit} with 95 % confidence" in words_of(pages["bare"], "verdict")
    assert "members from those that it was trained on" in pages["bare"]
    none = audit_page.to_html(samples.without_limits())
    assert "truly at least" not in none and "for a limit" in none


def test_contradiction_is_said() -> None:
    audit = samples.full(8.0, guard=False)
    stated = facts.guarantee(audit)
    assert stated is not None and facts.contradiction(audit.headline, stated)
    page = audit_page.to_html(audit)
    assert "Both cannot hold" in page and "a contradiction" in page


def words_of(page: str, name: str) -> str:
    part = page[page.index(f'<section id="{name}"') :]
    part = re.sub(
        r"</?a\b[^>]*>", "", part[: part.index("</section>")]
    )  # a word that is explained stays in its sentence
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", part)))


def test_measured_proven_and_allowed_are_kept_apart(pages: dict[str, str]) -> None:
    """A lower bound excludes guarantees; it must not be read as a share of members that somebody finds."""
    audit = samples.bare()
    text = words_of(pages["bare"], "person")
    measured, rest = text.split("Proven: which guarantees are excluded")
    proven, allowed = rest.split("Allowed: what a guarantee means")
    for point in audit.curve.tpr_at_fpr:
        assert f"Members found when {100 * point.fpr:.3g} % of the non-members are accused" in measured
        assert f"{100 * point.tpr:.3g} %" in measured
    for bound in audit.estimates[:2]:
        assert f"no training with a guarantee below ε = {bound.low:.4g} at δ = 1e-05" in proven
        tested = bound.details["tested"]
        assert f"of the {tested['upper']} ranked higher, {tested['upper_members']} were members" in proven
    for person in ("of the members", "Belief", "may find", "raise it"):
        assert person not in proven
    low = audit.headline.low
    assert f"if ε = {low:.4g} were guaranteed" in allowed and "These are limits, not findings" in allowed
    assert f"{100 / (1 + math.exp(-low)):.3g} %" in allowed
    for old in ("What the attack has shown", "every number of guesses", "cannot be ruled out any more"):
        assert old not in pages["bare"] and old not in pages["full"]


def test_every_epsilon_says_whose_it_is(pages: dict[str, str]) -> None:
    audit = samples.full()
    verdict, region = words_of(pages["full"], "verdict"), words_of(pages["full"], "evidence")
    replace, add = audit.estimates[:2]
    assert (
        f"ε ≥ {replace.low:.4g} for replacing one record; δ = 1e-5, 95 % confidence; finite-sample, random split"
        in verdict
    )
    for bound, act in ((replace, "for replacing one record"), (add, "for adding or removing one record")):
        stated = facts.guarantee(audit, bound)
        assert stated is not None and stated.neighbours == bound.neighbours
        start = act[:1].upper() + act[1:]
        assert (
            f"{start} the attack proves ε ≥ {bound.low:.4g}, the accountants prove ε ≤ {stated.epsilon:.4g}" in region
        )
    assert "whose ε" in words_of(pages["full"], "numbers")


def test_a_guarantee_for_other_neighbours_stands_beside_no_bound() -> None:
    audit = samples.full(guard=False)
    other = tuple(dataclasses.replace(g, neighbours="zero-out") for g in audit.upper)
    page = audit_page.to_html(dataclasses.replace(audit, upper=other, region=None))
    region = words_of(page, "evidence")
    assert "for zeroing out one record. That is another ε, so it does not stand beside the attack's." in region
    assert "Nothing is known in between" not in region and 'data-chart="accountants"' not in page
    assert "allowed by the guarantee" not in page and "another ε than the attack's" in words_of(page, "verdict")


def test_warnings_of_the_headline_stand_in_the_verdict() -> None:
    rng = np.random.default_rng(0)
    page = audit_page.to_html(audit_scores(Scores(rng.normal(-2, 1, 200), rng.normal(0, 1, 200)), resamples=0))
    assert "the scores look the wrong way round" in words_of(page, "verdict")


def test_a_check_that_was_switched_off_is_called_that() -> None:
    verdict = words_of(audit_page.to_html(samples.full(guard=False)), "verdict")
    assert "switched off" in verdict and "only scores were given" not in verdict


def test_epsilon_star_has_one_value_for_each_form(pages: dict[str, str]) -> None:
    audit = samples.full()
    stars = {e.method: e for e in audit.estimates if e.method.startswith("epsilon-star")}
    fitted, seen = (stars[f"epsilon-star-{form}"].epsilon for form in ("parametric", "empirical"))
    text = words_of(pages["full"], "star")
    assert f"the empirical form of Epsilon*, is {seen:.4g} " in text
    assert f"The parametric form, from normal fits, is {fitted:.4g}." in text
    found = star_line(audit, 50)
    assert found is not None and found.epsilon[found.best] == seen == max(found.epsilon)


def test_epsilon_star_says_that_it_cannot_tell() -> None:
    few = audit_scores(Scores.from_losses(np.linspace(0, 1, 40), np.linspace(5, 6, 40)), resamples=0)
    rows = words_of(audit_page.to_html(few), "numbers")
    assert "epsilon-star-parametric cannot tell –" in rows and "40 members and 40 non-members are too few" in rows


def test_charts_are_valid_vega_lite_with_hover_texts() -> None:
    specs = audit_page.charts(samples.full())
    assert list(specs) == ["region", "accountants", "roc", "distributions", "star", "subgroups"]
    assert list(audit_page.charts(samples.bare())) == ["region", "roc"]
    for width in (720, 330):
        for spec in audit_page.charts(samples.full(), width=width).values():
            altair.Chart.from_dict(spec)  # checks against the schema
            assert json.loads(json.dumps(spec, allow_nan=False)) == spec
            hover = next(layer for layer in spec["layer"] if layer.get("name") == "hover")
            assert all(row["text"] for row in spec["datasets"][hover["data"]["name"]])


def test_drawings_use_only_colours_of_the_theme(pages: dict[str, str]) -> None:
    used = set(re.findall(r'(?:fill|stroke)="([^"]*)"', pages["full"]))
    variables = {f"var({name})" for name in VARIABLES.values()}
    assert used <= variables | {"none", "transparent"}, used - variables
    style = re.search(r"<style>(.*?)</style>", pages["full"], flags=re.S)
    assert style is not None
    assert all(style[1].count(f"{name}:") == 2 for name in VARIABLES.values()), "each colour in light and in dark"


def test_marked_points_do_not_move() -> None:
    audit = samples.full()
    rows = audit_page.charts(audit)["roc"]["datasets"]
    drawn = {(row["x"], row["y"]) for data in rows.values() for row in data if "text" in row and "y" in row}
    for point in facts.tpr_points(audit):
        assert (point.fpr, point.tpr) in drawn
    star = star_line(audit, 50)
    assert star is not None and star.fpr.size <= 51
    assert star.epsilon[star.best] == max(star.epsilon)


def test_roc_lines_agree_with_the_definition() -> None:
    curve = samples.bare().curve
    lines = roc_lines(samples.bare(), 60)
    assert lines is not None
    for x, low in zip(lines.fpr, lines.tpr_low, strict=True):
        by_hand = max(
            (t for t, f in zip(curve.tpr_low, curve.fpr_high, strict=True) if f <= x * (1 + 1e-12)), default=0
        )
        assert low == by_hand
    assert np.all(np.diff(lines.tpr) >= 0) and np.all(lines.tpr_low <= lines.tpr + 1e-12)


@pytest.mark.parametrize(
    ("members", "nonmembers"),
    [
        ([1.0], [0.0]),
        ([0.0, 0.0], [0.0, 0.0]),
        (np.arange(50) + 100.0, np.arange(50) * 1.0),
        (np.arange(50) * 1.0, np.arange(50) + 100.0),
    ],
)
def test_corners_draw(members: list[float], nonmembers: list[float]) -> None:
    for delta in (0.0, 1e-5):
        page = audit_page.to_html(audit_scores(Scores(members, nonmembers), delta=delta, resamples=0))
        Outline(page)
        assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S).lower().split()


def test_infinite_guarantees_and_star_without_finite_supremum() -> None:
    audit = samples.full()
    upper = tuple(dataclasses.replace(g, epsilon=math.inf) for g in audit.upper)
    star = StarCurve(fpr=(0.1, 0.2), fnr=(0.0, 0.5), epsilon=(None, 1.0), best=0)
    bounds = tuple(e for e in audit.estimates if not e.method.startswith("epsilon-star"))
    audit = dataclasses.replace(audit, estimates=bounds)
    page = audit_page.to_html(dataclasses.replace(audit, upper=upper, region=None, star=star))
    Outline(page)
    assert "The largest value is not finite" in page and "can promise nothing" in page
    none = dataclasses.replace(star, epsilon=(None, None))
    empty = dataclasses.replace(audit, star=none, curve=None, risk=Risk(words=()), metadata=Metadata())
    assert 'id="star"' not in audit_page.to_html(empty) and 'id="roc"' not in audit_page.to_html(empty)


def test_files(tmp_path: Path) -> None:
    audit = samples.full()
    page = audit_page.write_html(audit, tmp_path / "audit.html", title="A <title>")
    assert "<h1>A &lt;title&gt;</h1>" in page.read_text(encoding="utf-8")
    files = audit_page.write_png(audit, tmp_path / "charts", formats=("png", "svg"))
    assert [f.name for f in files][:2] == ["region.png", "region.svg"] and len(files) == 12
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in files if f.suffix == ".png")
    width = int.from_bytes(files[0].read_bytes()[16:20])
    assert width == 2 * BESIDE
    with pytest.raises(InputError, match="folder that exists"):
        audit_page.write_html(audit, tmp_path / "no" / "audit.html")
    with pytest.raises(InputError, match="is a file"):
        audit_page.write_png(audit, page)
    with pytest.raises(InputError, match="formats"):
        audit_page.write_png(audit, tmp_path, formats=("jpeg",))
    with pytest.raises(InputError, match="audit must be an Audit"):
        audit_page.to_html("audit.json")  # type: ignore[arg-type]


def test_page_does_not_grow_with_the_data(pages: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    big = audit_scores(Scores(rng.normal(1, 1, 200_000), rng.normal(0, 1, 200_000)), resamples=0)
    assert len(audit_page.to_html(big)) < 1.3 * len(pages["bare"])
