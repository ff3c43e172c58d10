"""Accuracy of every kernel of transpose over the op's own problems, bits that arithmetic would change, and its binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[-1]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "vectorised")
# These ask for aligned rows, or for a short side.
PARTIAL = (
    "patches",
    "vectorised",
    "strips",
    "tall",
    "wide",
    "tall_packs",
    "wide_packs",
    "tall_rows",
    "lean_wide",
)
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    served = [p for p in problems if p.status == "passed"]
    assert len(served) == len(problems) or (kernel in PARTIAL and len(served) >= 4)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_every_bit_arrives(device: Device, open_kernel: Open, kernel: str) -> None:
    rows, columns = (136, 8) if kernel == "tall_rows" else (136, 68) if "tall" in kernel else (68, 136)
    bits = np.random.default_rng(3).integers(0, 2**32, (rows, columns), dtype=np.uint32)  # NaN payloads and subnormals among them
    with Case(device, OP, Problem({"rows": rows, "columns": columns})) as case:
        case.upload({"x": bits.view(np.float32)})
        case.launch(open_kernel(kernel), device.create_stream(non_blocking=True))
        device.synchronize()
        y = case.read_outputs()["y"]
    np.testing.assert_array_equal(y.view(np.uint32), bits.T)


def test_binding_and_alignment_are_refused_by_name(device: Device, open_kernel: Open) -> None:
    x, y = device.allocate(4096).view((4, 7), np.float32), device.allocate(4096).view((7, 4), np.float32)
    assert open_kernel("naive").supports(x=x, y=y) == ""
    assert open_kernel("vectorised").supports(x=x, y=y).startswith("x: address")
    with pytest.raises(ValueError, match=r"^y: expected shape \(7, 4\), got \(4, 7\)"):
        open_kernel("naive").supports(x=x, y=device.allocate(4096).view((4, 7), np.float32))
    with pytest.raises(TypeError, match=r"^x: expected a device array .* got NoneType"):
        open_kernel("naive").supports(x=None, y=y)


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("strips", 68),
        ("elements", 67),
        *((k, n) for k in ("tall", "wide", "lean_wide") for n in (1, 6, 12, 32, 67, 96, 128)),
        ("lean", 67),
    ],
)
def test_no_access_to_shared_memory_conflicts(device: Device, open_kernel: Open, kernel: str, short: int) -> None:
    if device.observer is None:
        pytest.skip("conflicts are counted on the emulated device")
    rows, columns = (short, 300) if kernel.endswith("wide") else (300, short)
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        y = UNDER_TEST.launch(device, open_kernel(kernel), Problem({"rows": rows, "columns": columns}), {"x": x})["y"]
        (launch,) = device.observer.take_counters()
    np.testing.assert_array_equal(y, x.T)
    assert launch.counts["shared_load_wavefronts"] > 0
    assert launch.counts["shared_load_conflicts"] == launch.counts["shared_store_conflicts"] == 0


@pytest.mark.parametrize(("kernel", "long"), [("tall_packs", 3000), ("tall_packs", 3001), ("wide_packs", 3000), ("wide_packs", 3001)])
@pytest.mark.parametrize("short", [5, 6, 8, 32, 39, 128])
def test_packs_take_fewer_instructions_than_elements(device: Device, open_kernel: Open, kernel: str, long: int, short: int) -> None:
    """Rows of the long side are accessed by packs where all begin at multiples of 16 bytes, the run always."""
    if device.observer is None:
        pytest.skip("instructions are counted on the emulated device")
    rows, columns = (short, long) if kernel == "wide_packs" else (long, short)
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    counts = []
    for each in (kernel, kernel.removesuffix("_packs")):
        with device.observer.observe((), counters=True):
            device.observer.take_counters()
            y = UNDER_TEST.launch(device, open_kernel(each), Problem({"rows": rows, "columns": columns}), {"x": x})["y"]
            (launch,) = device.observer.take_counters()
        np.testing.assert_array_equal(y, x.T)
        counts.append(launch.counts["warp_instructions"])
    assert counts[0] < (0.85 if long % 4 == 0 else 1.0) * counts[1]


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
