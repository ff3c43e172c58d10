"""The commands that put selection to the test: what they do beside timing, which here a made-up clock stands for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aicf.registry import HwCaps, Problem, open_registry
from device import Device

FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "selection"


@dataclass(frozen=True)
class MadeUpSubject:
    place: int
    launch: Callable[[Any], None]


class MadeUpTimer:
    """Says that the kernels of a problem take 1, 2, 3, ... us, in their order, and launches each once."""

    def __init__(self, device: Device) -> None:
        self._stream = device.create_stream()
        self._count = 0

    def prepare(self, launch: Callable[[Any], None], mode: Any) -> MadeUpSubject:
        launch(self._stream)
        self._stream.synchronize()
        self._count += 1
        return MadeUpSubject(self._count, launch)

    def warm_up(self, subjects: Any) -> None:
        pass

    def run_rounds(self, subjects: Any, num_rounds: int) -> Any:
        first = min(s.place for s in subjects)
        times = np.array([[s.place - first + 1.0] * 2 for s in subjects])
        return SimpleNamespace(times_us=np.broadcast_to(times, (num_rounds, *times.shape)))


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("held_out", "overhead", "page", "recorded", "regret", "running", "surveying"):
        sys.modules.pop(name, None)


def test_problems_are_drawn_around_the_benchs_and_none_was_measured() -> None:
    import held_out

    for op in ("gemm_bias_act", "softmax"):
        tables = open_registry().find_tables(op, HwCaps(9, 0))
        problems = held_out.draw_problems(op, tables, 50, seed=3)
        queries = [tables.interface.make_query(p) for p in problems]
        assert len({(q.sizes, q.values) for q in queries}) == 50
        assert not any((q.sizes, q.values) in tables.exact for q in queries)
        assert all(tables.find_legal(q) for q in queries)
        assert [p.sizes for p in held_out.draw_problems(op, tables, 50, seed=3)] == [p.sizes for p in problems]


def test_regret_is_of_the_chosen_kernel_against_all_that_serve(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    import page
    import regret

    small = [Problem({"rows": r, "columns": c}) for r, c in ((3, 40), (5, 300), (2, 9000))]
    monkeypatch.setattr(regret, "draw_problems", lambda op, tables, count, seed: small[:count])
    found = regret.measure_regret(device, "softmax", 3, 1, 60.0, MadeUpTimer(device))
    assert [row["sizes"]["rows"] for row in found["rows"]] == [3, 5, 2]
    for row in found["rows"]:
        assert row["best"] == min(row["times_us"], key=row["times_us"].get)
        assert row["regret"] == row["times_us"][row["chosen"]] / row["times_us"][row["best"]] - 1
        assert row["chosen"] in row["times_us"] and len(row["times_us"]) > 1
    whole = regret.summarize(found["rows"])
    assert whole["problems"] == 3 and whole["max"] == max(row["regret"] for row in found["rows"])
    facts = {"device": "d", "driver": 1, "toolchain": "t", "commit": "c" * 40, "command": "x"}
    assert "3 problems that nothing was measured on" in "\n".join(page._describe_regret([found | {"facts": facts}]))
    assert regret.measure_regret(device, "softmax", 3, 1, -1.0, MadeUpTimer(device))["rows"] == []


def test_selection_is_timed_on_problems_of_its_own(device: Device) -> None:
    import overhead

    found = overhead.measure_selection(device)
    assert 0 < found["repeat_us"] < found["new_us"]


def test_the_page_is_the_records() -> None:
    import page

    assert (FOLDER / "h200.md").read_text() == page.make_page(FOLDER)


def test_what_recorded_times_say_is_what_is_committed() -> None:
    import recorded

    committed = json.loads((FOLDER / "recorded-regret-gemm_bias_act.json").read_text())["rows"]
    for row in committed:
        times = row["times_us"]
        assert row["best"] == min(times, key=times.get)
        for key in ("known", "held_out", "bucket_too", "estimates", "least_work"):
            told = row[key]["regret"]
            assert told == (times[row[key]["chosen"]] / times[row["best"]] - 1 if row[key]["chosen"] in times else None)
    assert {r["problem"] for r in recorded.measure_recorded("gemm_bias_act")} >= {r["problem"] for r in committed[:1]}
