"""ptxas' report, and the occupancy that NVIDIA's occupancy calculator gives for the same figures."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from device.toolchain import find_toolchain
from harness.benchmark.session import Judged
from harness.build.builder import BuildResult
from harness.build.resources import Resources, find_occupancy, parse_ptxas
from harness.commands.verify import _print
from harness.discover import find_op
from harness.targets import find_target
from harness.verbs.verify import Verified

# As printed by ptxas 13.0.88.
REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4gemm' for 'sm_90a'
ptxas info    : Function properties for _Z4gemm
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 8 bytes cumulative stack size, 4224 bytes smem
ptxas info    : Compile time = 12.345 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
"""


def test_figures_are_read() -> None:
    found = parse_ptxas(REPORT)
    assert found is not None
    assert (found.registers, found.barriers, found.shared_bytes) == (168, 1, 4224)
    assert (found.stack_bytes, found.spill_store_bytes, found.spill_load_bytes, found.spill_bytes) == (8, 12, 16, 28)
    assert len(found.advice) == 1 and "C7510" in found.advice[0]


def test_the_largest_of_several_kernels_counts() -> None:
    found = parse_ptxas(REPORT + "ptxas info    : Used 200 registers, used 0 barriers\n")
    assert found is not None and found.registers == 200 and found.barriers == 1 and found.shared_bytes == 4224


def test_no_kernel_is_none() -> None:
    assert parse_ptxas("ptxas info    : 0 bytes gmem\n") is None


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "blocks", "limiter"),
    [
        (32, 0, 256, 8, "threads"),
        (32, 0, 32, 32, "blocks"),
        (255, 0, 256, 1, "registers"),
        (128, 0, 256, 2, "registers"),
        (33, 0, 1024, 1, "registers"),
        (33, 0, 64, 24, "registers"),
        (103, 0, 32, 16, "registers"),
        (172, 0, 96, 2, "registers"),
        (187, 0, 320, 0, "registers"),
        (32, 113 * 1024, 128, 2, "shared memory"),
        (32, 114 * 1024, 128, 1, "shared memory"),
        (32, 227 * 1024, 128, 1, "shared memory"),
    ],
)
def test_occupancy_on_h200(registers: int, shared: int, threads: int, blocks: int, limiter: str) -> None:
    found = find_occupancy(Resources(registers), threads, shared, find_target("h200"))
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.share == blocks * (threads // 32) / 64


CALCULATOR = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>

// Arguments: compute capability times ten, KiB of shared memory an SM and a block. Prints registers, warps, shared bytes, blocks an SM.
int main(int, char** arguments) {
    const int arch = std::atoi(arguments[1]);
    cudaOccDeviceProp device;
    device.computeMajor = arch / 10;
    device.computeMinor = arch % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 2048;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = std::atoi(arguments[2]) * 1024;
    device.sharedMemPerBlockOptin = std::atoi(arguments[3]) * 1024;
    device.reservedSharedMemPerBlock = 1024;
    device.numSms = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = 100;
    const int shared_bytes[] = {0, 1000, 16384, 50000, 114688};
    for (int registers = 16; registers <= 255; ++registers) {
        for (int warps = 1; warps <= 32; ++warps) {
            for (int shared : shared_bytes) {
                cudaOccFuncAttributes kernel;
                kernel.maxThreadsPerBlock = 1024;
                kernel.numRegs = registers;
                kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
                kernel.maxDynamicSharedSizeBytes = shared;
                cudaOccResult result;
                if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, warps * 32, shared)) return 1;
                std::printf("%d %d %d %d\n", registers, warps, shared, result.activeBlocksPerMultiprocessor);
            }
        }
    }
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "calculator.cpp").write_text(CALCULATOR)
    toolchain = find_toolchain()
    command = [toolchain.cxx, "-w", f"-I{toolchain.cuda_include}", "calculator.cpp", "-o", "calculator"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "calculator"


@pytest.mark.parametrize("name", ["h200", "a100"])
def test_occupancy_is_that_of_the_toolkits_own_calculator(calculator: Path, name: str) -> None:
    target = find_target(name)
    limits = [target.arch, target.shared_per_sm_bytes // 1024, target.shared_per_block_bytes // 1024]
    lines = subprocess.run([calculator, *map(str, limits)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 240 * 32 * 5
    wrong = []
    for line in lines:
        registers, warps, shared, blocks = map(int, line.split())
        found = find_occupancy(Resources(registers), warps * 32, shared, target)
        if found.blocks_per_sm != blocks:
            wrong.append((registers, warps, shared, blocks, found))
    assert not wrong, f"{len(wrong)} differ, the first: {wrong[0]}"


def test_a_kernel_that_fits_no_sm_has_no_occupancy() -> None:
    assert find_occupancy(Resources(32, 230 * 1024), 128, 0, find_target("h200")).blocks_per_sm == 0


@pytest.mark.parametrize("threads", [0, 1025])
def test_block_sizes_outside_the_limit_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match="threads_per_block"):
        find_occupancy(Resources(32), threads, 0, find_target("h200"))


def test_verify_says_which_variants_are_slow_as_they_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    (variant,) = find_op("softmax").op.select_variants(["naive/threads64"])
    fast = BuildResult(variant, Path("x.so"), "c", "k", Resources(32), None, 0.0, cached=True)
    slow = replace(fast, resources=Resources(32, advice=("ptxas info : (C7515) wgmma.mma_async instructions are serialized",)))
    _print(Verified("softmax", [Judged(b, True, "", 1) for b in (fast, slow)], (), "no plan", "emulated", "a CPU", 1, "nowhere"))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "C7515" in line]
    assert line.startswith("naive/threads64: slow as it is compiled: ptxas")
