"""The fixture ``gpu_benchmark`` in a pytest of its own, on a fake GPU: its users find device time where they look for time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
import pytest
from harness.timing.stats import StopRule
from harness.timing.timer import Timer, TimingPolicy
from tests.harness.fake_device import FakeDevice, FakeInstruments

pytest_plugins = ["harness.pytest_plugin"]

@pytest.fixture(scope="session")
def gpu_timer():
    device = FakeDevice()
    policy = TimingPolicy(stop=StopRule(min_samples=12, budget_s=0.0), warmup_cap_s=0.0, max_batch=4)
    yield Timer(device, policy, instruments=FakeInstruments(device))
"""

TESTS = """
import pytest
from harness.timing.batches import Mode

def make_launch(timer, time_us):
    def launch(stream):
        def run():
            timer.device.clock_us += time_us
        timer.device.enqueue(stream.handle, run)
    return launch

def test_cold(gpu_benchmark, gpu_timer):
    timing = gpu_benchmark(make_launch(gpu_timer, {time_us}))
    assert timing is None or timing.mode == "cold"

@pytest.mark.benchmark(group="hot ones")
def test_hot(gpu_benchmark, gpu_timer):
    gpu_benchmark(make_launch(gpu_timer, 7.0), Mode.HOT)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    # In a worker of pytest-xdist, pytest-benchmark would take the inner run for one too, and leave the file to its parent.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest(CONFTEST.format(root=str(Path(__file__).resolve().parents[2])))
    pytester.makepyfile(TESTS.replace("{time_us}", "50.0"))
    return pytester


def test_rounds_are_device_times(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("-q", "-p", "no:randomly", "--benchmark-json=out.json").assert_outcomes(passed=2)
    cold, hot = sorted(json.loads((suite.path / "out.json").read_text())["benchmarks"], key=lambda b: b["name"])
    assert cold["stats"]["median"] == pytest.approx(50e-6)
    assert cold["stats"]["rounds"] == len(cold["stats"]["data"]) == cold["extra_info"]["device_time"]["num_samples"] >= 10
    assert hot["stats"]["median"] == pytest.approx(7e-6)
    assert hot["group"] == "hot ones"
    assert hot["extra_info"]["device_time"]["method"] == "graph"


def test_a_slower_kernel_fails_the_comparison(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("-q", "--benchmark-save=before").assert_outcomes(passed=2)
    suite.makepyfile(TESTS.replace("{time_us}", "60.0"))
    done = suite.runpytest_subprocess("-q", "--benchmark-compare", "--benchmark-compare-fail=median:10%", "-k", "cold")
    assert done.ret != 0
    text = done.stdout.str() + done.stderr.str()
    assert "50.0000" in text and "60.0000" in text
    assert "PercentageRegressionCheck" in text and "Performance has regressed" in text


def test_where_benchmarks_are_off_the_launch_runs_once_and_nothing_is_reported(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess("-q", "--benchmark-disable")
    done.assert_outcomes(passed=2)
    done.stdout.no_fnmatch_line("*Median*")


def test_a_problem_that_is_not_served_skips_the_test_and_nothing_else(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nfilterwarnings = error\n")
    suite.makepyfile(
        """
        class Nothing:
            arguments = {}
            def supports(self):
                return "rows of 3 elements"

        def test_speed(gpu_benchmark):
            case = Nothing()
            gpu_benchmark.run_case(case, case)
        """
    )
    for mode in ("--benchmark-enable", "--benchmark-disable"):
        done = suite.runpytest_subprocess("-q", "-rs", mode)
        done.assert_outcomes(skipped=1)
        assert "this problem is not served: rows of 3 elements" in done.stdout.str()
