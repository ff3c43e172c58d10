"""The programs of this folder, compiled as they are, run to their own PASSED on the emulated device: all checks on, and nothing found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from device import choose_device, read_settings
from device.loader import find_emulator_library
from device.programs import BuildOptions, RunOptions, find_programs, run_program
from device.toolchain import find_toolchain

FOLDER = Path(__file__).parent
# nvcc takes long for each: half a minute or more for most.
SLOW = (
    "cooperative_groups.cu",
    "libcudacxx.cu",
    "cub_and_thrust.cu",
    "cutlass/cute.cu",
    "cutlass/gemm.cu",
    "cutlass/gemm_sm90.cu",
)


def find_cutlass() -> Path | None:
    """Return the folder of the headers that the wheel nvidia-cutlass ships."""
    spec = importlib.util.find_spec("cutlass_library")
    return Path(spec.origin).parent / "source" if spec is not None and spec.origin is not None else None


def parameters() -> list[object]:
    return [pytest.param(p, id=p.name, marks=[pytest.mark.slow] * (p.name in SLOW)) for p in find_programs(FOLDER)]


@pytest.mark.skipif(choose_device().name == "cuda", reason="about the emulated device, and this test run has a GPU")
@pytest.mark.parametrize("program", parameters())
def test_program_passes_with_nothing_found(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = read_settings()
    runtime = find_emulator_library(settings).resolve()
    cache = settings.cache_dir / "programs"
    extra: tuple[str, ...] = ()
    if program.folder.name == "cutlass":
        cutlass = find_cutlass()
        if cutlass is None:
            pytest.skip("needs the headers of the wheel nvidia-cutlass: pip install --no-deps nvidia-cutlass")
        extra = (f"-I{cutlass / 'include'}", f"-I{cutlass / 'tools/util/include'}")
    build = BuildOptions(find_toolchain(), runtime, cache, ptx_only=True, extra=extra)
    verdict = run_program(program, build, RunOptions(runtime, cache, rerun=True))
    assert (verdict.status, verdict.findings) == ("pass", ()), verdict.output + verdict.reason


@pytest.mark.skipif(choose_device().name == "cuda", reason="about the emulated device, and this test run has a GPU")
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_streams_and_graphs_pass_deferred_too(seed: str) -> None:
    settings = read_settings()
    runtime = find_emulator_library(settings).resolve()
    cache = settings.cache_dir / "programs"
    (program,) = [each for each in find_programs(FOLDER) if each.name == "streams_and_graphs.cu"]
    options = RunOptions(runtime, cache, rerun=True, emulated=(("mode", "deferred"), ("seed", seed)))
    verdict = run_program(program, BuildOptions(find_toolchain(), runtime, cache, ptx_only=True), options)
    assert (verdict.status, verdict.findings) == ("pass", ()), verdict.output + verdict.reason
