"""The pytest fixtures of the workbench: the device of the test run, and device time through pytest-benchmark.

    pytest_plugins = ["harness.pytest_plugin"]       # in conftest.py

    def test_speed(gpu_benchmark, cuda_device):
        gpu_benchmark(launch)                        # cold; gpu_benchmark(launch, Mode.HOT) for hot
        gpu_benchmark.run_case(case, launchable)     # a variant on a problem

A process has one device, so a test run has one too: ``device``, which ``AICF_DEVICE`` chooses. ``gpu_benchmark`` takes samples from
:mod:`harness.timing.timer`, cold or hot, which become the rounds of pytest-benchmark's own ``benchmark`` fixture, so that its tables,
``--benchmark-json``, ``--benchmark-compare`` and histograms show device time. All that timing knows besides is in ``extra_info``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pytest

from device import Device, choose_device, open_device
from device.settings import SettingError
from harness.spec import Launchable
from harness.timing.batches import Launch, Mode
from harness.timing.timer import Timer, Timing
from harness.verify.case import Case


class _SampleClock:
    """A clock in seconds that stands still but for the samples it is told to pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class GpuBenchmark:
    """What the fixture gives. Each may be used once, as pytest-benchmark's own."""

    def __init__(self, find_benchmark: Callable[[], Any], timer: Timer, clock: _SampleClock) -> None:
        self._find_benchmark = find_benchmark
        self.timer = timer
        self._clock = clock

    @cached_property
    def benchmark(self) -> Any:
        """pytest-benchmark's own fixture, asked for when there is something to time: it takes a test that does not use it for a mistake."""
        return self._find_benchmark()

    def __call__(self, launch: Launch, mode: Mode = Mode.COLD) -> Timing | None:
        """Time a launch and hand its samples over; returns the timing, or None where benchmarks are off and it ran once."""
        if self.benchmark.disabled:
            self.timer.run_batch([self.timer.prepare(launch, mode)])
            self.benchmark.pedantic(lambda: None)
            return None
        (timing,) = self.timer.measure([self.timer.prepare(launch, mode)])
        self._report(timing)
        return timing

    def run_case(self, case: Case, launchable: Launchable, mode: Mode = Mode.COLD) -> Timing | None:
        """Time a variant on a problem whose inputs are uploaded; a problem that it does not serve skips the test."""
        if reason := launchable.supports(**case.arguments):
            pytest.skip(f"this problem is not served: {reason}")
        case.prepare(launchable)
        return self(lambda stream: case.launch(launchable, stream), mode)

    def _report(self, timing: Timing) -> None:
        samples: Sequence[float] = timing.samples_us.tolist()
        waiting = iter(samples)

        def pass_sample() -> None:
            self._clock.now_s += 1e-6 * next(waiting)

        self.benchmark.extra_info["device_time"] = timing.to_figures()
        self.benchmark.pedantic(pass_sample, rounds=len(samples), iterations=1)


try:
    _CHOICE = choose_device()
except SettingError as error:
    raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session", params=[_CHOICE.name])
def device() -> Device:
    """Open the device of this test run; its name is in the test's id."""
    return open_device(_CHOICE.name)


@pytest.fixture(scope="session")
def emulated_device() -> Device:
    """Open the emulated device, for what only it has. It is part of the project: where it cannot be opened, tests fail."""
    if _CHOICE.name != "emulated":
        pytest.skip("this test run has a GPU: AICF_DEVICE=emulated tests the emulated device")
    return open_device("emulated")


@pytest.fixture(scope="session")
def cuda_device() -> Device:
    """Open an NVIDIA GPU, for what only it has."""
    if _CHOICE.name != "cuda":
        pytest.skip(f"no GPU in this test run: {_CHOICE.reason}")
    return open_device("cuda")


@pytest.fixture(scope="session")
def gpu_timer(cuda_device: Device) -> Iterator[Timer]:
    """Give a timer of the GPU of this test run."""
    timer = Timer(cuda_device)
    yield timer
    timer.close()


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest, gpu_timer: Timer) -> GpuBenchmark:
    """Time launches on the GPU, reported through pytest-benchmark."""
    clock = _SampleClock()
    # Options that the test asks for stay in force, all but the timer: it is the device's time that counts.
    asked = request.node.get_closest_marker("benchmark")
    options = dict(asked.kwargs) if asked is not None else {}
    request.node.add_marker(pytest.mark.benchmark(**(options | {"timer": clock})), append=False)
    return GpuBenchmark(lambda: request.getfixturevalue("benchmark"), gpu_timer, clock)
