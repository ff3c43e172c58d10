"""What stands behind a contest for a bucket: the incumbent out of its sealed sources, and every side a library of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contract.layout import find_frozen_dir
from device import Device
from device.toolchain import find_toolchain
from harness.build.binding import build_binding
from harness.build.builder import BuildResult, build_op
from harness.compare.contest import Contest, judge_rounds
from harness.compare.variants import Held, Side
from harness.discover import find_op
from harness.errors import FrozenError
from harness.freezing.decide import contests as contests_module
from harness.freezing.decide.contests import ContestRunner
from harness.freezing.decide.promote import PROMOTION
from harness.freezing.gates.domain import find_disagreement
from harness.freezing.store.index import read_frozen_op
from harness.spec import Launchable, Problem
from harness.targets import find_target
from harness.timing.stats import StopReason
from harness.timing.timer import Mode
from tests.harness.noise import NOISES, make_rounds

LOADED = find_op("softmax")
PROBLEM = LOADED.op.select_problems("bench")[0]


class Contests:
    """Stands for measuring: notes who is there, and that each of them answers."""

    def __init__(self) -> None:
        self.sides: list[str] = []
        self.num_opened = 0
        self.errors: list[float] = []

    def hold(
        self,
        session: Any,
        timer: Any,
        sides: Sequence[Side],
        opened: Sequence[Launchable],
        problem: Problem,
        mode: Mode,
        criteria: Any,
        budget_s: float,
        expect: Any,
    ) -> Held:
        self.sides, self.num_opened = [s.name for s in sides], len({id(o) for o in opened})
        self.errors.append(criteria.error)
        kernel = LOADED.op.find_kernel("naive")
        assert kernel.domain is not None
        for each in opened:
            assert find_disagreement(LOADED.op, kernel.domain({"threads": 64}), each, num_calls=20) == ""
        rounds = make_rounds(np.random.default_rng(1), NOISES["white"], [50.0] * len(opened), 24)
        outcomes, control = judge_rounds(rounds, np.full(rounds.shape, np.nan), criteria)
        names = (sides[0].name, f"{sides[0].name} (control)", *(s.name for s in sides[1:]))
        contest = Contest(names, rounds, np.full(rounds.shape, np.nan), tuple(outcomes), control, False, 0, StopReason.SETTLED)
        return Held(problem, mode, {}, contest, ("",) * len(names), tuple(range(len(names))))


@pytest.fixture
def contests(device: Device, monkeypatch: pytest.MonkeyPatch) -> Contests:
    found = Contests()
    monkeypatch.setattr(contests_module, "hold_contest", found.hold)
    return found


def make_runner() -> tuple[ContestRunner, tuple[BuildResult, Any], Any]:
    toolchain = find_toolchain()
    session: Any = SimpleNamespace(loaded=LOADED, toolchain=toolchain)
    (variant,) = LOADED.op.select_variants(["naive/threads64"])
    (build,) = build_op(LOADED, [variant], toolchain=toolchain, target=find_target("h200"))
    frozen = read_frozen_op(find_frozen_dir(), "softmax")
    entry = next(e for e in frozen.entries if e["kernel"].startswith("naive__threads64__"))
    return ContestRunner(session, frozen, SimpleNamespace(), PROMOTION), (build, build_binding(LOADED, toolchain)), entry  # type: ignore[arg-type]


def test_the_incumbent_comes_from_its_sealed_sources(contests: Contests) -> None:
    runner, candidate, entry = make_runner()
    with runner:
        found = runner.hold([PROBLEM, PROBLEM], entry, [candidate])
    assert contests.sides == [entry["kernel"], "naive/threads64"]
    assert contests.num_opened == 3, "incumbent, control and candidate are loaded apart"
    assert contests.errors == [PROMOTION.error / 2] * 2, "the error is shared among the problems"
    assert [m.names for m in found] == [(entry["kernel"], "naive/threads64")] * 2
    outcome = found[0].find_outcome("naive/threads64")
    assert not isinstance(outcome, str) and found[0].find_median_us(entry["kernel"]) == pytest.approx(50.0, rel=0.02)
    assert found[0].find_outcome("somebody") == f"not measured: {entry['kernel']} does not serve it"


def test_a_candidate_alone_is_timed_against_its_copy(contests: Contests) -> None:
    runner, candidate, _ = make_runner()
    with runner:
        runner.hold([PROBLEM], None, [candidate])
    assert contests.sides == ["naive/threads64", "naive/threads64 (copy)"]


def test_a_problem_without_a_contest_is_not_left_out(contests: Contests, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, candidate, entry = make_runner()
    monkeypatch.setattr(contests_module, "hold_contest", lambda *words: Held(words[4], Mode.COLD, {"naive/threads64": "rows too long"}))
    with runner:
        (match,) = runner.hold([PROBLEM], entry, [candidate])
    assert match.problem is PROBLEM
    assert match.find_outcome("naive/threads64") == match.find_fault("naive/threads64") == "not measured: rows too long"
    assert match.find_median_us("naive/threads64") is None
    assert match.to_json(SimpleNamespace())["verdict"] == "not held: naive/threads64: rows too long"  # type: ignore[arg-type]


def test_an_incumbent_with_other_machine_code_is_not_measured(contests: Contests, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, candidate, entry = make_runner()
    monkeypatch.setattr(contests_module, "find_other_code", lambda kernel, library: "the machine code is another one")
    with runner, pytest.raises(FrozenError, match="cannot be measured: the machine code is another one"):
        runner.hold([PROBLEM], entry, [candidate])
