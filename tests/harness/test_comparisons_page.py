"""Comparisons on the page: each contest's verdict, effect and control as they were recorded, and an op's goals beside its peers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import records
from harness.__main__ import main
from harness.compare.contest import Contest, run_contest
from harness.compare.goals import Ratio, Row, record_goals
from harness.discover import find_op
from harness.errors import RecordError
from harness.records.database import Records
from harness.records.facts import ResultFacts
from harness.records.rows import make_goal_rows
from harness.report.pictures.contests import FAILED, VOID, count_verdicts, name_contenders, read_goals, select_comparisons
from harness.report.pictures.forest import plot_comparisons, plot_goal
from harness.report.pictures.labels import shorten_problems
from harness.report.pictures.page import write_page
from harness.report.pictures.svg import make_svg
from harness.report.pictures.theme import NARROW, WIDE
from harness.spec import Goal, Problem
from harness.timing.verdicts import Criteria
from tests.harness.browser import look_at, open_browser
from tests.harness.noise import NOISES
from tests.harness.test_contest import SUBJECT, SimulatedTimer
from tests.harness.test_page import read_text
from tests.harness.test_published import GPU, OP, make_timing
from tests.harness.test_records import start

NAMES = [v.name for v in OP.variants]
PROBLEMS = OP.select_problems("bench")
# Of the incumbent, its copy, and candidates: the second is slower than the first, the copy of the second contest differs.
TIMES_US = ((50.0, 50.0, 47.0, 50.05, 51.2, 90.0), (50.0, 51.0, 45.0), (50.0, 50.0, 49.2, 50.0))


def hold(times_us: Sequence[float], criteria: Criteria) -> Contest:
    timer = SimulatedTimer(times_us, NOISES["white"])
    names = (NAMES[0], f"{NAMES[0]} (control)", *NAMES[1 : len(times_us) - 1])
    return run_contest(timer, [SUBJECT] * len(names), names, criteria, default_mhz=1980.0, clock=lambda: timer.now_s)


def list_facts(contest: Contest, problem: Problem, reasons: dict[int, str], mode: str = "cold") -> list[ResultFacts]:
    """Return the results of candidates, as ``compare`` records them; ``reasons`` say which failed."""
    found = []
    for i, name in enumerate(contest.names[2:]):
        figures = contest.to_figures(i) | {"role": "candidate", "mode": mode, "name": name}
        reason = reasons.get(i, "")
        samples = contest.times_us[:, i + 2].reshape(-1).astype(np.float32)
        status = "failed" if reason else "passed"
        found.append(ResultFacts("compare", "softmax", name, problem.name, status, reason, key="k", figures=figures, samples=samples))
    return found


@pytest.fixture(scope="module")
def contests() -> list[Contest]:
    return [hold(times, Criteria()) for times in TIMES_US]


def fill(store: Records, contests: Sequence[Contest]) -> Any:
    for i, contest in enumerate(contests):
        store.add_results(start(store, GPU), list_facts(contest, PROBLEMS[i], {1: "wrong after it was timed: 3 of 7"} if i == 2 else {}))
    return records.load("softmax", "store")


def test_a_comparison_is_what_its_contest_said(store: Records, contests: list[Contest]) -> None:
    rows = select_comparisons(fill(store, contests), "GPU")
    assert [len(g) for _, g in rows.groupby("contest", sort=False)] == [4, 1, 2]
    first = rows[rows.problem == PROBLEMS[0].name].set_index("candidate")
    for name, outcome in zip(contests[0].names[2:], contests[0].outcomes, strict=True):
        assert (first.verdict[name], first.change[name], first.high[name]) == (outcome.verdict, outcome.effect.change, outcome.effect.high)
        assert first.cycles[name] == outcome.verdict and first.margin[name] == Criteria().margin
    assert set(first.verdict) == {"FASTER", "SAME", "SLOWER"}
    assert set(first.control) <= {"SAME", "AMBIGUOUS"} and set(first.control_change) == {contests[0].control.change}
    assert count_verdicts(rows) == f"2 FASTER, 2 SLOWER, 1 SAME, 1 {VOID}, 1 {FAILED}"


def test_a_void_run_and_a_wrong_output_have_no_verdict_but_a_reason(store: Records, contests: list[Contest]) -> None:
    rows = select_comparisons(fill(store, contests), "GPU").set_index("verdict")
    assert "differs from itself" in rows.why[VOID] and rows.control[VOID] == "SLOWER"
    assert rows.why[FAILED] == "wrong after it was timed: 3 of 7"


def test_of_two_contests_of_the_same_the_newest_counts(store: Records, contests: list[Contest]) -> None:
    slower = hold((50.0, 50.0, 52.0), Criteria())
    store.add_results(start(store, GPU), list_facts(hold((50.0, 50.0, 47.0), Criteria()), PROBLEMS[0], {}))
    store.add_results(start(store, GPU), list_facts(slower, PROBLEMS[0], {}))
    store.add_results(start(store, GPU), list_facts(slower, PROBLEMS[0], {}, mode="hot"))
    rows = select_comparisons(records.load("softmax", "store"), "GPU")
    assert list(rows["mode"]) == ["cold", "hot"] and set(rows.verdict) == {"SLOWER"}
    assert select_comparisons(records.load("softmax", "store"), "another GPU").empty


def test_the_band_is_that_of_the_contest(store: Records) -> None:
    wide = hold((50.0, 50.0, 51.0), Criteria(margin=0.05))
    store.add_results(start(store, GPU), list_facts(wide, PROBLEMS[0], {}))
    (row,) = select_comparisons(records.load("softmax", "store"), "GPU").itertuples()
    assert (row.verdict, row.margin) == ("SAME", 0.05)


def test_revisions_are_told_apart() -> None:
    import pandas as pd

    frame = pd.DataFrame({"incumbent": ["x/bm1@0123456789", "x/bm2@0123456789"], "candidate": ["x/bm1", "x/bm2"]})
    assert list(name_contenders(frame).values()) == ["x bm1 @ 0123456", "x bm2 @ 0123456", "x bm1", "x bm2"]


def read_svg(svg: str) -> list[str]:
    return [re.sub(r"<[^>]*>", "", t) for t in re.findall(r"<text.*?</text>", svg, flags=re.DOTALL)]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_plot_says_each_effect_and_verdict(store: Records, contests: list[Contest], width: int) -> None:
    rows = select_comparisons(fill(store, contests), "GPU")
    texts = read_svg(make_svg(plot_comparisons(rows, shorten_problems(rows.problem), width), "f", "d"))
    said = [t for t in texts if t.endswith(("FASTER", "SLOWER", "SAME", VOID, FAILED))]
    assert len(said) == len(rows) and said.count(FAILED) == 1
    assert {t.split(" % ")[0] for t in said} >= {
        f"{100 * c:+.2f}".replace("-", "\N{MINUS SIGN}") for c in rows.change[rows.verdict != FAILED]
    }
    assert sum("(A/A)" in t for t in texts) == 3


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1600, "light")])
def test_a_browser_finds_nothing_wrong(store: Records, contests: list[Contest], tmp_path: Path, width: int, scheme: str) -> None:
    store.add_results(start(store, GPU), [make_timing(NAMES[0], 100.0), make_timing(NAMES[1], 90.0)])
    html = write_page(OP, fill(store, contests))
    text = read_text(html)
    assert "compared 7 2 FASTER, 2 SLOWER, 1 SAME, 1 VOID, 1 FAILED" in text
    assert "differs from itself" in text and "wrong after it was timed: 3 of 7" in text and "99.8 % confidence" in text
    (tmp_path / "page.html").write_text(html)
    with open_browser() as browser:
        look = look_at(browser, tmp_path / "page.html", width, scheme)
    assert look.complaints == [] and 'id="comparisons"' in html


def test_published_goals_are_read_as_they_were_measured() -> None:
    path = Path(__file__).resolve().parents[2] / "profiles" / "gemm_bias_act" / "goals.json"
    document = json.loads(path.read_text())
    frame = records.load("gemm_bias_act", "published")
    goals = read_goals(frame, document["environment"]["device_name"])
    assert [(g.goal.name, g.verdict, len(g.ratios)) for g in goals] == [
        (g["goal"], g["verdict"], len(g["problems"])) for g in document["goals"]
    ]
    for goal, written in zip(goals, document["goals"], strict=True):
        assert goal.geomean == pytest.approx(written["geomean"])
        assert all(r.low <= ratio <= r.high for ratio, r in goal.measured if r.low and r.high)
        texts = read_svg(make_svg(plot_goal(goal, shorten_problems(r.problem for r in goal.ratios), WIDE), "f", "d"))
        assert [t for t in texts if re.fullmatch(r"\d\.\d{3}", t)] == [f"{r.ratio:.3f}" for r in goal.ratios if r.ratio is not None]
        assert texts.count("not measured") == len(goal.ratios) - len(goal.measured)


def test_goals_alone_make_a_page() -> None:
    frame = records.load("gemm_backward", "published")
    frame = frame[frame.kind == "goal"]
    assert len(frame) > 0
    html = write_page(find_op("gemm_backward").op, frame)
    assert "Beside the peers, goal by goal" in html and "1970" not in html


@pytest.mark.slow
def test_report_shows_goals_that_are_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", "gemm_backward", "--published", "--html", str(tmp_path / "page.html")])
    assert ended.value.code == 0 and "page: " in capsys.readouterr().out
    assert "goal by goal" in (tmp_path / "page.html").read_text()


def test_the_terminal_says_the_verdict_of_a_contest(store: Records, contests: list[Contest], capsys: pytest.CaptureFixture[str]) -> None:
    fill(store, contests)
    with pytest.raises(SystemExit):
        main(["report", "softmax", "--run", "1", "--run", "2"])
    out = capsys.readouterr().out
    assert re.search(rf"cold 4[67]\S* us, FASTER -\d\.\d\d % against {NAMES[0]}", out) and re.search(r"us, void -\d", out), out


def test_goals_of_a_run_are_recorded_and_the_newest_count(store: Records) -> None:
    class FakeSession:
        def __init__(self) -> None:
            self.run = start(store, GPU)

        def record(self, build: None, **fields: Any) -> int:
            return store.add_results(self.run, [ResultFacts(op="softmax", **fields)])[0]

    goal = Goal("g", "title", tuple(PROBLEMS[:2]), ("lib",), aim=1.1, least=1.0)
    for own_us in (10.0, 8.0):
        measured = Ratio("g", PROBLEMS[0].name, NAMES[0], "why", own_us, "lib", 12.0, low=12.0 / own_us - 0.1, high=12.0 / own_us + 0.1)
        missing = Ratio("g", PROBLEMS[1].name, NAMES[0], "why", reason="not timed")
        record_goals(FakeSession(), {}, [Row(goal, (measured, missing))])  # type: ignore[arg-type]
    (row,) = read_goals(records.load("softmax", "store"), "GPU")
    assert row.geomean == 1.5 and row.verdict == "1 of 2 not measured"
    assert (row.ratios[0].low, row.ratios[1].reason, row.goal.aim) == (1.4, "not timed", 1.1)


def test_a_file_that_holds_no_goals_is_named(tmp_path: Path) -> None:
    path = tmp_path / "goals.json"
    path.write_text('{"goals": [{"goal": "x"}]}')
    with pytest.raises(RecordError, match=r"goals\.json holds no goals: KeyError"):
        list(make_goal_rows(path))
