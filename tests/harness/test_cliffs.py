"""Cliffs: which neighbours are compared, what jumps, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.compare.drawn.cliffs import JUMP, Pair, explain_jump, find_jump, find_work_ratio, guess_jump, list_pairs, make_cliffs
from harness.compare.drawn.frozen_choice import FrozenChoice
from harness.compare.drawn.page import make_cliffs_page
from harness.spec import OneOf, Problem, Tie
from tests.harness.test_drawn import DrawnBench
from tests.harness.test_session import run
from tests.harness.toy_op import make_toy

TILES = {"tile": {"M": 128, "N": 128}, "slots": 4}
FAST, SLOW = FrozenChoice("fast", "v", "near", "", 10.0, ("fast", "slow")), FrozenChoice("slow", "v", "near", "", 14.0, ("slow",))


def make_pair(name: str, low: int, **sizes: int) -> Pair:
    base = {"M": 512, "N": 128, "K": 64} | sizes
    return Pair(Problem(base | {name: low}), Problem(base | {name: low + 1}), f"{name} {low} to {low + 1}")


def test_neighbours_are_one_apart_about_the_size_and_about_the_borders_near_it() -> None:
    pairs = list_pairs(make_toy(), [Problem({"M": 130, "N": 9, "K": 5})])
    assert all(sum(p.low.sizes[s] != p.high.sizes[s] for s in "MNK") == 1 for p in pairs)
    assert {p.low.sizes["M"] for p in pairs if p.step.startswith("M")} == {127, 128, 129, 130, 255, 256}
    assert {p.low.sizes["K"] for p in pairs if p.step.startswith("K")} == {4, 5, 7, 8}
    assert len({(p.low.name, p.high.name) for p in pairs}) == len(pairs)


def test_sizes_that_are_tied_have_no_neighbours() -> None:
    op = make_toy(ties=(Tie((OneOf("bias", (True,)),), equal=(("N", "K"),)),), problems=())
    assert {p.step[0] for p in list_pairs(op, [Problem({"M": 9, "N": 8, "K": 8}, {"bias": True})])} == {"M"}


@pytest.mark.parametrize(
    ("low_us", "high_us", "jump", "is_up"), [(10.0, 15.0, 1.2, True), (15.0, 10.0, 1.5, False), (10.0, 12.5, 1.0, True)]
)
def test_a_jump_is_beyond_what_there_is_more_to_do(low_us: float, high_us: float, jump: float, is_up: bool) -> None:
    assert find_jump(1.25, low_us, high_us) == (pytest.approx(jump), is_up)


def test_causes_are_told_apart() -> None:
    op = make_toy()
    lost = explain_jump(op, make_pair("N", 128), (FAST, SLOW), {})
    assert "rows of B, Y are whole multiples of 8 only on one side" in lost and "fast does not serve M512_N129_K64" in lost
    both = FrozenChoice("slow", "v", legal=("fast", "slow"))
    assert explain_jump(op, make_pair("M", 512), (FAST, both), {}) == "other kernels: fast and slow"
    assert explain_jump(op, make_pair("M", 512), (FAST, FAST), {"fast": TILES}) == "1 and 2 waves of fast"
    assert explain_jump(op, make_pair("M", 300), (FAST, FAST), {"fast": TILES}) == "neither alignment, kernel nor waves differ"


def test_the_likeliest_are_looked_at_first() -> None:
    wave, plain = make_pair("M", 512), make_pair("M", 300)
    guesses = [guess_jump(1.0, (FAST, other), {"fast": TILES}, pair) for other, pair in ((SLOW, plain), (FAST, wave), (FAST, plain))]
    assert guesses[0] > 1.4 and guesses[1] == 2.0 and guesses[2] == 1.0
    assert guess_jump(1.0, (FrozenChoice(error="none"), FAST), {}, plain) == 0.0


def test_the_worst_comes_first_and_what_does_not_jump_is_left_out() -> None:
    op, pairs = make_toy(), [make_pair("M", 300), make_pair("M", 512), make_pair("M", 7), make_pair("M", 9)]
    times = {
        "M300_N128_K64": 10.0,
        "M301_N128_K64": 12.0,
        "M512_N128_K64": 10.0,
        "M513_N128_K64": 19.0,
        "M7_N128_K64": 5.0,
        "M8_N128_K64": 5.0,
    }
    choices = {p.name: FAST for pair in pairs for p in (pair.low, pair.high)}
    found = make_cliffs(op, pairs, times, choices, {"fast": TILES})
    assert [c.step for c in found] == ["M 512 to 513", "M 300 to 301"] and all(c.jump >= JUMP for c in found)
    assert found[0].jump == pytest.approx(1.9 / find_work_ratio(op, pairs[1])) and found[0].slower == "M513_N128_K64"
    page = make_cliffs_page("toy", found, "Times of the model", 4, 3)
    assert page.index("M 512 to 513") < page.index("M 300 to 301") and "3 of 4 pairs" in page


def test_cliffs_are_timed_on_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    gpu = DrawnBench(monkeypatch, tmp_path)
    monkeypatch.setattr("harness.compare.drawn.cliff_run._read_priors", lambda op, choices: {"k": {"tile": {"M": 8}, "slots": 1}})
    plain = gpu.frozen_body

    def jump(**arguments: Any) -> None:
        gpu.device.clock_us += 30.0 if arguments["A"].shape[0] > 8 else 0.0
        plain(**arguments)

    gpu.frozen_body = jump
    code, text, err = run(capsys, "compare", "toy", "--drawn", "4", "--seed", "3", "--cliffs", "--json")
    found = json.loads(text)
    assert code == 0, err
    assert found["cliffs"] and all(c["step"] == "M 8 to 9" and "waves of k" in c["cause"] for c in found["cliffs"])
    assert found["cliffs"][0]["jump"] == pytest.approx(70 / 40, rel=0.1) and "Fake device" in found["where"]
    assert (tmp_path / ".aicf" / "drawn" / "toy" / "cliffs.md").is_file()


def test_cliffs_of_what_is_not_frozen_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    DrawnBench(monkeypatch, tmp_path)
    monkeypatch.setattr(
        "harness.compare.drawn.cliff_run.choose_frozen", lambda op, problems, arch: [FrozenChoice(error="not frozen")] * len(problems)
    )
    code, _, err = run(capsys, "compare", "toy", "--drawn", "1", "--cliffs")
    assert code == 3 and "cliffs are of the frozen decision: not frozen" in err
