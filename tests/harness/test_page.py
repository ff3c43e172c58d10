"""The page of an op: whole, true to the records, and a pleasure in a real browser at any width, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import records
from harness.__main__ import main
from harness.discover import find_op
from harness.errors import RecordError
from harness.records.database import Records
from harness.records.facts import ResultFacts
from harness.report.pictures import page
from harness.report.pictures.heatmap import choose_axes, make_table
from harness.report.pictures.labels import shorten_problems, shorten_variants
from harness.report.pictures.page import write_page
from harness.report.pictures.selection import find_verdicts, make_history
from harness.report.pictures.tables import describe_source
from tests.harness.browser import look_at, open_browser
from tests.harness.test_published import GPU, OP, OTHER, OWN, make_timing
from tests.harness.test_records import start

OPS = ("softmax", "transpose", pytest.param("gemm_bias_act", marks=pytest.mark.slow))  # the slow one takes ten seconds to draw
NASTY = '<script>alert(1)</script> & "quotes"'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Pages of what the project publishes, each drawn when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def draw_page(op: str) -> Path:
        path = folder / f"{op}.html"
        frame = records.load(op, "published")
        # Every part of the page is there with a few problems, and each more takes a second to draw.
        few = list(dict.fromkeys(frame.problem[frame.kind == "bench"]))[:2]
        shown = frame[(frame.kind != "bench") | frame.problem.isin(few)]
        shown.attrs = frame.attrs
        with pytest.MonkeyPatch.context() as patch:
            if op == "softmax":
                patch.setattr(page, "_NUM_WIDTHS", 2)  # the others are drawn once, and scrolled where there is no room
            path.write_text(write_page(find_op(op).op, shown))
        return path

    return draw_page


@pytest.mark.parametrize(
    ("op", "width", "scheme"),
    [
        pytest.param("gemm_bias_act", 400, "dark", marks=pytest.mark.slow),
        pytest.param("gemm_bias_act", 1600, "light", marks=pytest.mark.slow),
        ("softmax", 400, "light"),
        ("softmax", 900, "dark"),
        ("transpose", 400, "dark"),
        ("transpose", 1600, "dark"),
    ],
)
def test_a_browser_finds_nothing_wrong(browser: Any, draw: Callable[[str], Path], tmp_path: Path, op: str, width: int, scheme: str) -> None:
    look = look_at(browser, draw(op), width, scheme)
    (tmp_path / f"{op}-{width}-{scheme}.png").write_bytes(look.picture)
    assert look.complaints == []
    assert look.requests == [], "the page needs nothing else"
    assert look.num_figures >= 5


def test_light_and_dark_differ(browser: Any, draw: Callable[[str], Path]) -> None:
    pictures = {look_at(browser, draw("softmax"), 900, scheme).picture for scheme in ("light", "dark")}
    assert len(pictures) == 2


PLANTED = {
    "is 900 px wide": '<div style="width: 900px">wide</div>',
    "lies over": '<figure><figcaption>F</figcaption><svg class="chart" viewBox="0 0 100 50" width="100" height="50">'
    '<text x="5" y="30" font-size="12px">one</text><text x="9" y="32" font-size="12px">two</text></svg></figure>',
    "is outside": '<figure><figcaption>F</figcaption><svg class="chart" viewBox="0 0 100 50" width="100" height="50">'
    '<text x="90" y="30" font-size="12px">beyond</text></svg></figure>',
    "px high": '<figure><figcaption>F</figcaption><svg class="chart" viewBox="0 0 100 50" width="100" height="50">'
    '<text x="5" y="30" font-size="5px">tiny</text></svg></figure>',
    "0 drawings are shown": '<figure><figcaption>F</figcaption><svg class="chart" style="display: none"></svg></figure>',
    "console: lost": "<script>console.error('lost')</script>",
    "error: ": "<script>nothing.here()</script>",
}


@pytest.mark.parametrize("complaint", PLANTED)
def test_what_is_wrong_with_a_page_is_found(browser: Any, tmp_path: Path, complaint: str) -> None:
    path = tmp_path / "liar.html"
    path.write_text(f"<!DOCTYPE html><html><body style='margin: 0'>{PLANTED[complaint]}</body></html>")
    found = look_at(browser, path, 400, "light").complaints
    assert len(found) == 1 and complaint in found[0]


@pytest.mark.parametrize("op", OPS)
def test_the_page_is_one_file(draw: Callable[[str], Path], op: str) -> None:
    text = draw(op).read_text()
    assert re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?!data:)', text) == []
    assert re.findall(r'url\((?!#)|@import|xlink:href="(?!#)', text) == []
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids)), "drawings refer to their own parts"
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text)) <= {(i, "") for i in ids} | {("", i) for i in ids}


def make_verdict(variant: str, status: str, reason: str = "") -> ResultFacts:
    return ResultFacts("verify", "softmax", variant, "*", status, reason, key="k")


def read_text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", html, flags=re.DOTALL)))


def test_the_page_says_what_the_records_say(store: Records) -> None:
    statics = {"statics": {"registers": 77, "shared_bytes": 4321, "spill_bytes": 16, "occupancy": 0.5, "limiter": "registers"}}
    own = make_timing(OWN, 123.4)
    own = replace(own, figures={**(own.figures or {}), **statics})
    refused = make_timing(OTHER, 0.0, status="failed", reason=NASTY, figures={}, samples=None, clocks=None)
    unserved = make_timing(OP.variants[2].name, 0.0, status="unsupported", reason="too long", figures={}, samples=None, clocks=None)
    verdicts = [make_verdict(OWN, "passed"), make_verdict(OTHER, "failed", "race")]
    store.add_results(start(store, GPU), [*verdicts, make_timing("library", 100.0, key=""), own, refused, unserved])
    html = write_page(OP, records.load("softmax"))
    text = read_text(html)
    assert "1 of 2 variants" in text and "failed race" in text
    assert "<script>" not in html
    assert "123.4" in text and "81.0 %" in text and "against libraries 81 %" in text
    assert "77 4321 16 50 %" in text
    assert "too long" in text and "Not served by" in text
    assert "one run of these problems is recorded" in text


def test_a_roofline_of_one_intensity_is_left_out_and_that_is_said(draw: Callable[[str], Path]) -> None:
    text = draw("softmax").read_text()
    assert "<h2>Roofline</h2>" not in text and "<h2>Share of the roofline</h2>" in text
    assert "Roofline: all problems have one arithmetic intensity (0.62 flop per byte)" in read_text(text)


@pytest.mark.slow
def test_a_roofline_of_many_intensities_is_shown(draw: Callable[[str], Path]) -> None:
    assert "<h2>Roofline</h2>" in draw("gemm_bias_act").read_text()


@pytest.mark.parametrize("op", OPS)
def test_every_card_says_which_device_and_commit_it_speaks_of(draw: Callable[[str], Path], op: str) -> None:
    html = draw(op).read_text()
    cards = re.findall(r"<section.*?</section>", html, flags=re.DOTALL) + re.findall(r'<li class="tile">.*?</li>', html)
    assert len(cards) >= 8
    assert all(re.search(r"(?:NVIDIA H200|emulated), commits? [0-9a-f]{7}", card) for card in cards)


def test_sources_of_several_devices_and_commits_are_told_apart(store: Records) -> None:
    store.add_results(start(store, GPU), [make_timing(OWN, 100.0), make_verdict(OWN, "passed")])
    store.add_results(start(store, replace(GPU, device_kind="emulated")), [make_verdict(OTHER, "passed")])
    frame = records.load("softmax", "store")
    commit = frame.commit.iloc[0][:7]
    assert describe_source(frame) == f"GPU, commit {commit}; emulated, commit {commit}"
    assert describe_source(frame.assign(dirty=True).head(1)) == f"GPU, commit {commit} with changes"
    two = frame.assign(commit=["a" * 40, "b" * 40, "b" * 40], device_kind="cuda")
    assert describe_source(two) == "GPU, commits bbbbbbb and 1 before it"
    assert describe_source(frame.head(0)) == ""


def test_a_second_run_makes_a_history_and_the_newest_time_counts(store: Records) -> None:
    store.add_results(start(store, GPU), [make_timing(OWN, 271.3), make_timing(OTHER, 300.0)])
    store.add_results(start(store, GPU), [make_timing(OWN, 150.0), make_timing(OTHER, 310.0)])
    html = write_page(OP, records.load("softmax"))
    assert 'id="history"' in html and "150" in read_text(html) and "271" not in read_text(html).split("Variants")[0]


def test_a_run_that_was_cut_short_is_no_step_in_the_history(store: Records) -> None:
    names = [v.name for v in OP.variants[:4]]
    for times in ([400.0, 300.0, 200.0, 100.0], [390.0, 290.0, 190.0, 90.0], [380.0]):
        store.add_results(start(store, GPU), [make_timing(name, t) for name, t in zip(names, times, strict=False)])
    history = make_history(records.load("softmax"), "GPU", [OP.select_problems("bench")[0].name])
    assert list(history.median_us) == [100.0, 90.0]


def test_a_verdict_that_failed_on_either_device_counts(store: Records) -> None:
    store.add_results(start(store, GPU), [make_verdict(OWN, "failed", "mismatch"), make_verdict(OTHER, "failed", "race")])
    store.add_results(start(store, GPU), [make_verdict(OTHER, "passed")])
    store.add_results(start(store, replace(GPU, device_kind="emulated")), [make_verdict(OWN, "passed"), make_verdict(OTHER, "passed")])
    verdicts = find_verdicts(records.load("softmax", "store"))
    assert dict(verdicts.status) == {OWN: "failed", OTHER: "passed"}


def test_counts_alone_make_a_page_without_times(store: Records, browser: Any, tmp_path: Path) -> None:
    launches = [{"counts": {"warp_instructions": 1234, "global_loads": 2, "global_load_sectors": 8}}]
    counters = make_timing(OWN, 0.0, kind="counters", figures={"launches": launches}, samples=None, clocks=None)
    store.add_results(start(store, replace(GPU, device_kind="emulated")), [counters])
    html = write_page(OP, records.load("softmax", "store"))
    text = read_text(html)
    assert "1234 4 0 0" in text and "No bench on a GPU is recorded" in text and "roofline" not in text
    (tmp_path / "counts.html").write_text(html)
    assert look_at(browser, tmp_path / "counts.html", 400, "light").complaints == []


def test_a_sweep_without_a_gpu_is_shown_as_the_models(store: Records, browser: Any, tmp_path: Path) -> None:
    names = [f"row_in_registers/threads{t}_rows{r}_vectors4" for t in (16, 32) for r in (1, 2, 4)]
    points = [make_timing(n, 100.0 + i, kind="sweep_model", mode="model", samples=None, clocks=None) for i, n in enumerate(names)]
    store.add_results(start(store, replace(GPU, device_kind="emulated")), points)
    html = write_page(OP, records.load("softmax", "store"))
    text = read_text(html)
    assert "Sweeps by the time model" in text and "6 variants; modelled µs of the" in text and 'id="sweeps"' not in html
    assert "cold µs" not in text and "No bench on a GPU is recorded" in text
    (tmp_path / "model.html").write_text(html)
    assert look_at(browser, tmp_path / "model.html", 400, "dark").complaints == []


def test_records_that_show_nothing_are_an_error(store: Records) -> None:
    store.add_results(start(store, GPU), [make_timing(OWN, 1.0, kind="compare", figures={})])
    with pytest.raises(RecordError, match="hold no verdict, time or count"):
        write_page(OP, records.load("softmax", "store"))


def test_report_writes_the_page(store: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.add_results(start(store, GPU), [make_timing(OWN, 100.0)])
    path = tmp_path / "deep" / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", "softmax", "--html", str(path)])
    assert ended.value.code == 0 and f"page: {path}" in capsys.readouterr().out
    assert path.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(SystemExit) as ended:
        main(["report", "softmax", "--html", str(path), "--json"])
    assert ended.value.code == 2


VARIANTS = st.lists(
    st.builds(lambda k, a, b, c: f"{k}/bm{a}_bn{b}_s{c}", st.sampled_from(["x", "y"]), *(st.integers(1, 4) for _ in range(3))), unique=True
)


@given(VARIANTS)
def test_short_names_of_variants_tell_them_apart(names: list[str]) -> None:
    labels = shorten_variants(names)
    assert len(set(labels.values())) == len(names)
    assert all(label.split(" ")[0] == name.split("/")[0] for name, label in labels.items())


def test_short_names_of_problems() -> None:
    names = ["M1_N2-act=none-dtype=bfloat16-bias", "M1_N2-act=relu-dtype=bfloat16-bias", "M3_N2-act=none-dtype=bfloat16-bias"]
    assert list(shorten_problems(names).values()) == ["1×2", "1×2 relu", "3×2"]
    assert list(shorten_problems(["M1_N2-x", "M1_N2-y=none"]).values()) == ["1×2 x", "1×2"]
    assert shorten_problems(["M1-pad=none", "M1"]) == {"M1-pad=none": "M1-pad=none", "M1": "M1"}, "no two become the same"
    assert shorten_problems([]) == {}


def make_sweep(rows: list[tuple[dict[str, int], float]]) -> pd.DataFrame:
    return pd.DataFrame({"tunables": [r[0] for r in rows], "median_us": [r[1] for r in rows]})


def test_a_heat_map_has_the_best_time_over_the_other_tunables() -> None:
    sizes = [(m, n, s) for m in (8, 16, 32) for n in (8, 16) for s in (1, 2)]
    sweep = make_sweep([({"bm": m, "bn": n, "stages": s}, 100.0 * m / n + s) for m, n, s in sizes])
    assert choose_axes(sweep) == ("bm", "bn")
    table = make_table(sweep, "bm", "bn")
    assert list(table.index) == [8, 16, 32] and list(table.columns) == [8, 16]
    assert table.loc[16, 8] == 201.0 and table.min(axis=None) == 51.0


def test_one_tunable_makes_no_map_and_few_cells_give_way_to_more() -> None:
    assert choose_axes(make_sweep([({"bm": m, "bn": 8}, 1.0) for m in (1, 2, 4)])) is None
    rows = [({"bm": m, "bn": n, "s": s}, 1.0) for m, n in ((1, 1), (2, 2)) for s in range(5)]
    assert choose_axes(make_sweep(rows)) == ("bm", "s")


def test_a_cell_that_was_not_timed_is_not_zero() -> None:
    table = make_table(make_sweep([({"a": 1, "b": 1}, 5.0), ({"a": 2, "b": 2}, 7.0)]), "a", "b")
    assert np.isnan(table.loc[1, 2]) and table.loc[2, 2] == 7.0
