"""Figures as SVG of a page: the drawing is the one that matplotlib made, in fewer bytes, and what is written in it is not touched."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.pictures.charts import plot_distributions
from harness.report.pictures.svg import Drawing, Stylesheet, make_svg, shorten_path
from harness.report.pictures.theme import LIGHT, NARROW, WIDE, make_figure, measure_text, use_style

Point = tuple[float, float]
PLACES = st.floats(-2000, 2000, width=32).map(lambda x: round(x, 6))
POINTS = st.tuples(PLACES, PLACES)
COMMANDS = st.one_of(
    st.tuples(st.sampled_from("ML"), st.lists(POINTS, min_size=1, max_size=1)),
    st.tuples(st.just("Q"), st.lists(POINTS, min_size=2, max_size=2)),
    st.tuples(st.just("C"), st.lists(POINTS, min_size=3, max_size=3)),
    st.tuples(st.just("z"), st.just([])),
)


def follow(path: str) -> list[Point]:
    """Return the points that a short path goes through, in order, control points included."""
    points: list[Point] = []
    at = start = (0.0, 0.0)
    for command, numbers in re.findall(r"([mlhvqcz])([^a-z]*)", path):
        values = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        if command == "z":
            at = start
            continue
        size = {"h": 1, "v": 1, "m": 2, "l": 2, "q": 4, "c": 6}[command]
        assert values and len(values) % size == 0
        for i in range(0, len(values), size):
            step = values[i : i + size]
            pairs = (
                [(step[0], 0.0)]
                if command == "h"
                else [(0.0, step[0])]
                if command == "v"
                else list(zip(step[::2], step[1::2], strict=True))
            )
            ends = [(at[0] + dx, at[1] + dy) for dx, dy in pairs]
            points += ends
            at = ends[-1]
            start = at if command == "m" else start
    return points


@given(st.lists(COMMANDS, max_size=30))
def test_a_short_path_goes_where_the_long_one_goes(commands: list[tuple[str, list[Point]]]) -> None:
    commands = [("M", [(1.0, 2.0)]), *commands]
    path = " \n".join(" ".join([letter, *(f"{x:.6f} {y:.6f}" for x, y in points)]) for letter, points in commands)
    wanted = [point for _, points in commands for point in points]
    short = shorten_path(path)
    assert np.abs(np.array(follow(short)) - np.array(wanted)).max() <= 0.0501, short
    assert len(short) <= len(path)


def test_errors_of_rounding_do_not_add_up() -> None:
    path = "M 0 0 " + " ".join(f"L {0.04 * i:.2f} {i}" for i in range(1, 1001))
    assert follow(shorten_path(path))[-1] == pytest.approx((40.0, 1000.0), abs=0.05)


def draw_text(text: str) -> str:
    with use_style():
        figure, axes = make_figure(200, 100)
        axes.text(0.5, 0.5, text, color=LIGHT["bad"])
        axes.plot([0, 1], [0.12345678, 1], color=LIGHT["good"])
    return make_svg(figure, "f", 'A "plot" of 0.98765 <b>')


def test_what_is_written_is_not_rounded_and_what_is_drawn_is() -> None:
    svg = draw_text("1.0314 and 0.99951")
    assert "1.0314 and 0.99951" in svg
    assert re.findall(r'\b[xy]="-?\d+\.\d{2,}"', svg) == []
    ET.fromstring(svg)  # every element that begins ends
    assert "var(--bad)" in svg and "var(--good)" in svg and LIGHT["bad"] not in svg
    assert "DejaVu" not in svg, "the type is the page's"


def test_drawings_of_one_page_do_not_share_names() -> None:
    drawings = [Drawing(plot_distributions(make_timed(n, 40), {"k": 0}, WIDE)).to_svg() for n in (2, 3)]
    ids = [set(re.findall(r' id="([^"]*)"', svg)) for svg in drawings]
    assert ids[0] and not ids[0] & ids[1]
    for svg, own in zip(drawings, ids, strict=True):
        ET.fromstring(svg)
        assert set(re.findall(r'(?:url\(#|href="#)([^")]*)', svg)) <= own
        assert "var(--" not in svg and LIGHT["surface"] in svg


def test_styles_are_written_once() -> None:
    sheet = Stylesheet()
    first, second = (sheet.share(draw_text(text)) for text in ("one", "two"))
    for svg in (first, second):
        assert svg.count("style=") == 1, "but the figure's own"
        assert set(re.findall(r'class="(s\d+)"', svg)) <= set(re.findall(r"\.(s\d+)\{", sheet.to_css()))
    assert re.findall(r'class="(s\d+)"', first) == re.findall(r'class="(s\d+)"', second)
    assert "fill: var(--bad)" in sheet.to_css()


def make_timed(num_rows: int, num_samples: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = []
    for i in range(num_rows):
        samples = np.round(100 * random.lognormal(0, 0.01, num_samples) / 0.032) * 0.032  # as a timer's steps are
        median = float(np.median(samples))
        rows.append({"variant": f"k/bm{i}", "kernel": "k", "is_peer": i % 2 == 0, "median_us": median, "samples_us": samples})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_thousands_of_samples_are_few_bytes(width: int) -> None:
    svg = make_svg(plot_distributions(make_timed(20, 500), {"k": 0}, width), "f", "d")
    ET.fromstring(svg)
    assert len(svg) < 40_000
    few = make_svg(plot_distributions(make_timed(20, 40), {"k": 0}, width), "f", "d")
    assert len(few) < len(svg)


def test_few_samples_among_many_are_seen() -> None:
    timed = make_timed(1, 200)
    timed.at[0, "samples_us"] = np.concatenate([np.full(195, 100.0), np.full(5, 100.5)])
    timed["median_us"] = 100.0
    paths = re.findall(r'<path d="([^"]*)"[^>]*stroke-opacity', make_svg(plot_distributions(timed, {"k": 0}, WIDE), "f", "d"))
    heights = [abs(b[1] - a[1]) for a, b in zip(follow(paths[0])[::2], follow(paths[0])[1::2], strict=True)]
    assert len(heights) == 2 and heights[0] > 2 * heights[1] > 0


def test_letters_have_a_width() -> None:
    assert measure_text(["iii"]) < measure_text(["mmm"]) == measure_text(["i", "mmm"])
    assert measure_text([]) == 0
