"""Programs built with -G: their PTX is another one, with calls, locals in memory, debug sections and inlined_at in its .loc lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime, run_isolated
from .kernels import Kernels, build

SOURCE = Path(__file__).with_name("debug.cu")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("debug"), ("-G",))


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


@pytest.mark.slow
def test_virtual_functions_recursion_templates_and_lambdas(kernels: Kernels) -> None:
    arrays, reports = kernels.run("calls", np.zeros(32, np.float32))
    areas = [(i + 1.0) ** 2 if i % 2 else 3 * (i + 0.5) ** 2 for i in range(32)]
    assert reports == []
    assert arrays[0].tolist() == [2 * areas[i] + sum(k * i for k in range(8)) + _fibonacci(i % 12) for i in range(32)]


def test_cooperative_groups_shared_memory_and_atomics(kernels: Kernels) -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    arrays, reports = kernels.run("reduce", x, np.zeros(1, np.float32), 1000)
    assert reports == []
    assert np.isclose(arrays[1][0], np.exp(-(x.astype(np.float64) ** 2)).sum(), rtol=1e-6)


def test_tensor_cores(kernels: Kernels) -> None:
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    arrays, reports = kernels.run("tensor", a, b, np.zeros((16, 16), np.float32))
    assert reports == []
    assert np.allclose(arrays[2], a.astype(np.float64) @ b.astype(np.float64).T + 1, atol=1e-4)


def test_printf(runtime_library: Path, emulator: Runtime, library: Path) -> None:
    body = f"program = ctypes.CDLL({str(library)!r})\nx = cuda.alloc(np.arange(32, dtype=np.int32))\n"
    done = run_isolated(runtime_library, body + "program.run_text(c_void_p(x))\ncuda.call('cudaDeviceSynchronize')\n")
    assert done.stdout == "thread 0 has 0 and zero\nthread 1 has 1 and one\n", done.stderr


def test_a_fault_is_reported_with_its_line(kernels: Kernels) -> None:
    _, reports = kernels.run("fault", np.zeros(40, np.int32), 10)
    lines = SOURCE.read_text().splitlines()
    found = {lines[int(report["source"].split(":")[1]) - 1].strip() for report in reports}
    assert {report["kind"] for report in reports} == {"out_of_bounds_write"}
    assert found == {"x[i] = i;", "if (i > n) x[i] = -i;"}
    assert sum(report["count"] for report in reports) == 2 * 24
