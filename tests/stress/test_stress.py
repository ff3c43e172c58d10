"""The short form of ``make stress``: the algorithms that showed torn accesses, with several host threads."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from device import choose_device, read_settings
from device.loader import find_emulator_library


@pytest.fixture(scope="module")
def stress() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stress_run", Path(__file__).with_name("run.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(choose_device().name == "cuda", reason="about the emulated device, and this test run has a GPU")
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("algorithm", ["scan", "run_length"])
def test_no_result_is_wrong(stress: ModuleType, algorithm: str, workers: int) -> None:
    library = find_emulator_library(read_settings()).resolve()
    binary = stress.build_algorithm(algorithm, library)
    for case in (stress.Case(workers, "default", "none", 3, stress.LARGE, 1), stress.Case(workers, "random", "all", 3, 4000, 1)):
        result = stress.run_case(binary, library, case)
        assert (sum(result.rounds.values()), result.wrong) == (5 * case.rounds, {}), result.complaint


def test_cases_have_every_number_of_host_threads_with_and_without_checks(stress: ModuleType) -> None:
    cases = [case for case, _ in zip(stress.draw_cases((1, 2, 4), 5), range(24), strict=False)]
    assert {(case.workers, case.checks) for case in cases} == {(n, checks) for n in (1, 2, 4) for checks in ("none", "all")}
    assert {case.schedule for case in cases if case.checks == "all"} == set(stress.SCHEDULES)
    assert len({case.seed for case in cases}) == 4


def test_the_record_has_every_type_and_the_wrong_results(stress: ModuleType) -> None:
    rounds, wrong = Counter({("scan", "int64"): 6, ("sort", "float"): 2}), Counter({("scan", "int64"): 1})
    lines = stress.render_record(("scan", "sort"), rounds, wrong, "4 programs run, 8 results, 1 wrong", "60 s").splitlines()
    assert "4 programs run, 8 results, 1 wrong (60 s)." in lines
    assert lines[-4:] == ["| algorithm | float | int64 |", "|---|--:|--:|", "| scan |  | 6 (1) |", "| sort | 2 (0) |  |"]
