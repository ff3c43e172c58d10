"""Goals: ratios, verdicts, the page and the plot, from made-up times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from harness.compare.goals import Row, make_rows, select_goals, time_all
from harness.compare.goals_page import make_page
from harness.compare.goals_run import list_regrets
from harness.report.pictures.forest import plot_goals
from harness.report.pictures.labels import shorten_problems
from harness.report.pictures.svg import Drawing
from harness.report.pictures.theme import WIDE
from harness.spec import Choice, Goal, Problem, SpecError, Variant
from harness.timing.stats import find_ratio_interval
from tests.harness.toy_op import make_toy

SMALL, LARGE = Problem({"M": 16, "N": 16, "K": 16}, {"bias": True, "relu": True}), Problem({"M": 1, "N": 1, "K": 1})
GOAL = Goal("speed", "both sizes", (SMALL, LARGE), ("lib", "other"), aim=1.2, least=1.0, worst=0.9)
CHOICES = {p.name: Choice(Variant("honest"), "the only one") for p in (SMALL, LARGE)}


def timed(median_us: float, status: str = "passed", error: float | None = None) -> Any:
    summary = SimpleNamespace(median=median_us, low=0.99 * median_us, high=1.02 * median_us)
    return SimpleNamespace(status=status, reason="", cold=SimpleNamespace(summary=summary), error=error)


def make_row(small: dict[str, Any], large: dict[str, Any]) -> Row:
    return make_rows([GOAL], CHOICES, {SMALL.name: small, LARGE.name: large}, ("honest", "atomic"))[0]


def test_the_fastest_peer_counts_and_the_mean_is_geometric() -> None:
    row = make_row({"honest": timed(10), "lib": timed(20), "other": timed(16)}, {"honest": timed(10), "lib": timed(10)})
    assert row.geomean == pytest.approx(1.6**0.5) and row.verdict == "met"
    assert row.measured[0][0] == 1.0 and row.ratios[0].peer == "other"


def test_a_ratio_has_an_interval_of_both_times() -> None:
    low, high = find_ratio_interval((30.0, 27.0, 33.0), (10.0, 10.0, 10.0))
    assert (low, high) == (pytest.approx(2.7), pytest.approx(3.3))
    assert find_ratio_interval((30.0, 30.0, 30.0), (10.0, 8.0, 12.5)) == (pytest.approx(30.0 / 12.5), pytest.approx(30.0 / 8.0))
    low, high = find_ratio_interval((30.0, 27.0, 33.0), (10.0, 9.0, 11.0))
    assert 3 * 0.9 * (10 / 11) < low < 2.7 and 3.3 < high < 3 * 1.1 / 0.9
    (ratio, _) = make_row({"honest": timed(10), "lib": timed(20)}, {"honest": timed(10), "lib": timed(20)}).ratios
    assert ratio.low is not None and ratio.high is not None and ratio.low < 2.0 < ratio.high


@pytest.mark.parametrize(
    ("times", "verdict"),
    [((12.5, 12.0), "met"), ((11.0, 11.0), "the least"), ((9.9, 9.9), "missed"), ((20.0, 8.9), "missed"), ((9.0, 12.0), "the least")],
)
def test_verdicts(times: tuple[float, float], verdict: str) -> None:
    small, large = ({"honest": timed(10), "lib": timed(t)} for t in times)
    assert make_row(small, large).verdict == verdict


def test_what_was_not_measured_is_no_success() -> None:
    good = {"honest": timed(10), "lib": timed(20)}
    assert make_row(good, {"lib": timed(1)}).verdict == "1 of 2 not measured"
    assert make_row(good, {"honest": timed(1, "failed"), "lib": timed(1)}).verdict == "1 of 2 not measured"
    assert make_row(good, {"honest": timed(1)}).verdict == "1 of 2 not measured"
    assert make_row({}, {}).verdict == "not measured"


def test_a_peer_that_is_wrong_counts_and_is_named() -> None:
    row = make_row({"honest": timed(10), "lib": timed(5, "failed")}, {"honest": timed(10), "lib": timed(20)})
    assert row.ratios[0].ratio == 0.5 and row.ratios[0].reason == "lib misses the op's bound"


def test_page_and_plot_hold_every_problem() -> None:
    row = make_row({"honest": timed(10), "lib": timed(20)}, {})
    page = make_page("toy", [row], "GPU", ["peer x left out"])
    assert "| both sizes | lib or other | 2.0000 |" in page and "Not there: peer x left out." in page
    led = make_page("toy", [row], "GPU", [], ["## Drawn problems", ""])
    assert led.index("## Drawn problems") < led.index("## Listed problems") < led.index("| both sizes")
    plot = Drawing(plot_goals([row], "toy. GPU <0>", WIDE)).to_svg()
    texts = [t.text for t in ET.fromstring(plot).iter("{http://www.w3.org/2000/svg}text")]
    assert {"toy. GPU <0>", "2.000", "not measured", *shorten_problems([SMALL.name, LARGE.name]).values()} <= set(texts)
    assert {"both sizes", "mean 2.0000, aim 1.2, least 1: 1 of 2 not measured"} <= set(texts)


def test_errors_stand_beside_times() -> None:
    row = make_row(
        {"honest": timed(10, error=0.25), "lib": timed(20, error=0.031), "other": timed(30)}, {"honest": timed(10), "lib": timed(12)}
    )
    assert (row.ratios[0].own_error, row.ratios[0].peer_error) == (0.25, 0.031)
    page = make_page("toy", [row], "GPU", [])
    assert "| 10.00 (0.25) | 20.00 (0.031) | 2.000 |" in page and "| 10.00 | 12.00 | 1.200 |" in page


def test_goals_are_selected_by_name_and_an_op_without_any_is_refused() -> None:
    op = make_toy(goals=(GOAL,), choose=lambda p: CHOICES[p.name])
    assert select_goals(op, []) == select_goals(op, ["speed"]) == (GOAL,)
    with pytest.raises(SpecError, match="has no goal 'size'; it has: speed"):
        select_goals(op, ["size"])
    with pytest.raises(SpecError, match="has no goals"):
        select_goals(make_toy(), [])
    with pytest.raises(SpecError, match="not one of the op's problems"):
        make_toy(goals=(Goal("bad", "bad", (Problem({"M": 9, "N": 9, "K": 9}),), ("lib",), 1.0, 1.0),))


def test_regret_is_to_the_fastest_variant_that_is_right() -> None:
    lib = {"lib": timed(20)}
    row = make_row({"honest": timed(11), "atomic": timed(10), **lib}, {"honest": timed(11), "atomic": timed(1, "failed"), **lib})
    first, second = row.ratios
    assert first.regret == pytest.approx(0.1) and first.best == "atomic"
    assert second.regret is None
    assert list_regrets([row])[0] == "regret of the choices on 1 problems: 10.00 % on average"
    assert list_regrets([make_row({"honest": timed(10), **lib}, {})]) == []
    assert "10.0 % behind atomic" in make_page("toy", [row], "GPU", [])


@pytest.mark.parametrize(("second", "rounds"), [("passed", 2), ("failed", 2)])
def test_who_got_no_time_is_timed_once_more(monkeypatch: pytest.MonkeyPatch, second: str, rounds: int) -> None:
    calls: list[int] = []

    def time_problem(*_: object, **__: object) -> list[Any]:
        calls.append(1)
        lost = SimpleNamespace(name="lib", status="failed", reason="held too long", cold=None)
        return [lost] if len(calls) == 1 or second == "failed" else [SimpleNamespace(name="lib", status="passed", reason="", cold=object())]

    monkeypatch.setattr("harness.compare.goals.time_problem", time_problem)
    session: Any = SimpleNamespace(device=None, target=None, loaded=SimpleNamespace(op=None))
    assert time_all(session, None, SMALL, [])["lib"].status == second  # type: ignore[arg-type]
    assert len(calls) == rounds


def test_who_does_not_serve_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def time_problem(*_: object, **__: object) -> list[Any]:
        calls.append(1)
        return [SimpleNamespace(name="lib", status="unsupported", reason="no", cold=None)]

    monkeypatch.setattr("harness.compare.goals.time_problem", time_problem)
    time_all(SimpleNamespace(device=None, target=None, loaded=SimpleNamespace(op=None)), None, SMALL, [])  # type: ignore[arg-type]
    assert len(calls) == 1
