"""Charts that could mislead: roofs that lie close, a history of noise, colours without a key."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import RecordError
from harness.report.pictures.charts import plot_history, plot_roofline
from harness.report.pictures.heatmap import plot_heatmap
from harness.report.pictures.svg import make_svg
from harness.report.pictures.tables import make_counter_rows
from harness.report.pictures.theme import NARROW, WIDE
from harness.report.pictures.trials import plot_trials, read_trials
from harness.targets import find_target
from tests.harness.test_published import OP

UNITS = {"a": "fp32", "b": "tf32_tensor", "c": "bf16_tensor"}


def list_texts(svg: str) -> list[tuple[str, float, float]]:
    """Return every text with its place in pixels from the left and from the top."""
    found = re.findall(r'<text [^>]*?x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]*)<', svg)
    return [(text, float(x), float(y)) for x, y, text in found]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_roofs_that_lie_close_are_named_apart(width: int) -> None:
    target = find_target("h200")
    rows = [
        {"problem": p, "kernel": "k", "is_peer": False, "flops": 1e9 * f, "bytes_moved": 1e9, "tflops": 1e-3 * f}
        for p, f in zip(UNITS, (1.0, 100.0, 1000.0), strict=True)
    ]
    texts = list_texts(make_svg(plot_roofline(pd.DataFrame(rows), target, UNITS, {"k": 0}, width), "f", "d"))
    roofs = [(x, y) for text, x, y in texts if text.endswith("TFLOP/s") and text != "TFLOP/s"]
    assert len(roofs) == 3 and any("DRAM" in text for text, _, _ in texts)
    for one, other in itertools.combinations(roofs, 2):
        assert abs(one[1] - other[1]) >= 12


def make_history(shares: list[float]) -> pd.DataFrame:
    first = datetime(2030, 1, 1, 12, tzinfo=UTC)
    return pd.DataFrame(
        {
            "problem": "p",
            "run_uid": [str(i) for i in range(len(shares))],
            "commit": "c" * 40,
            "started_at": [first + timedelta(days=i) for i in range(len(shares))],
            "median_us": shares,
            "q1_us": [s - 0.3 for s in shares],
            "q3_us": [s + 0.3 for s in shares],
        }
    )


def test_noise_is_no_trend() -> None:
    figure = plot_history(make_history([100.0, 99.8, 100.1]), {"p": "p"}, WIDE)
    low, high = figure.axes[0].get_ylim()
    assert low <= 94 and high >= 104
    assert "2030-01-03" in make_svg(figure, "f", "d")
    low, high = plot_history(make_history([100.0, 50.0]), {"p": "p"}, WIDE).axes[0].get_ylim()
    assert low < 50


def test_long_names_leave_a_legend_room() -> None:
    long = "8192×14336×4096 gelu_tanh bf16 nk with_bias save_z"
    history = pd.concat([make_history([100.0, 90.0]).assign(problem=p) for p in "abcd"])
    texts = list_texts(make_svg(plot_history(history, dict.fromkeys("abcd", long), WIDE), "f", "d"))
    names = [(x, y) for text, x, y in texts if text == long]
    assert len(names) == 4 and len({x for x, _ in names}) == 1


def test_a_map_has_a_key_to_its_colours() -> None:
    sweep = pd.DataFrame({"tunables": [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)], "median_us": [1.0, 2.0, 4.0, 8.0]})
    texts = [text for text, _, _ in list_texts(make_svg(plot_heatmap(sweep, "a", "b"), "f", "d"))]
    assert texts[-3:] == ["best", "2×", "4× and more"]


def test_counters_follow_the_ladder() -> None:
    names = [v.name for v in OP.variants[:3]]
    figures = {"launches": [{"counts": {"warp_instructions": 1}}]}
    counters = pd.DataFrame([{"variant": n, "problem": p, "figures": figures} for n in reversed(names) for p in ("q", "p")])
    rows = make_counter_rows(OP, counters, {"p": "p", "q": "q"})
    assert [(r["problem"], r["full"]) for r in rows] == [(p, n) for p in ("q", "p") for n in names]


def test_every_contest_of_a_trial_is_drawn_under_its_verdict(tmp_path: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "profiles" / "timing" / "h200-contests.json"
    trials = read_trials(path)
    figure = plot_trials(trials, WIDE)
    drawn = sum(len(line.get_xdata()) for line in figure.axes[0].lines)
    assert drawn == len(trials)
    said = re.findall(r"<text[^>]*>([^<]*)<", make_svg(figure, "f", "d"))
    for (kernel, mode, planted), group in trials.groupby(["kernel", "mode", "planted"]):
        assert f"{kernel}, {mode}: {f'{planted:+d} %' if planted else 'itself'}" in said
        assert f"{len(group)} {group.verdict.iloc[0]}" in said, "none of these was wrong"
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(RecordError, match=r"other\.json holds no contests"):
        read_trials(tmp_path / "other.json")
