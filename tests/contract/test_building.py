"""A frozen kernel is built from what was sealed, once, whole or not at all; what is in the cache needs no compiler."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from contract import building
from contract.building import HOST_HASH, PTXAS_LOG, build_kernel
from contract.frozen_set import read_op
from contract.kernels import FrozenKernel
from device import UnavailableError
from device.settings import read_settings
from device.toolchain import BuildError


def find_naive() -> FrozenKernel:
    return next(k for n, k in read_op("softmax").kernels.items() if n.startswith("naive__"))


@pytest.fixture(scope="module")
def library() -> Path:
    """The library of one kernel, as the compiler makes it."""
    return build_kernel(find_naive())


@pytest.fixture
def compilations(library: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts what is compiled; what it makes is the library above, after a while."""
    made: list[str] = []

    def compile_quickly(kernel: FrozenKernel, toolchain: Any, scratch: Path) -> Path:
        made.append(kernel.name)
        time.sleep(0.05)
        for name in (PTXAS_LOG, HOST_HASH):
            (scratch / name).write_text("")
        return Path(shutil.copyfile(library, scratch / library.name))

    monkeypatch.setattr(building, "compile_kernel", compile_quickly)
    return made


def test_a_build_is_of_the_sealed_machine_code_and_lies_in_the_cache(library: Path) -> None:
    assert library.is_relative_to(read_settings().cache_dir / "frozen" / "softmax")
    assert build_kernel(find_naive()) == library


def test_what_is_in_the_cache_needs_no_compiler(library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_nothing() -> Any:
        raise UnavailableError("no nvcc of release 13.0; install it")

    monkeypatch.setattr(building, "find_toolchain", find_nothing)
    assert build_kernel(find_naive()) == library
    with pytest.raises(UnavailableError, match=r"softmax/naive__.* must be built from its sealed sources: no nvcc .*; install it"):
        build_kernel(find_naive(), tmp_path)


def test_many_at_once_compile_once(compilations: list[str], tmp_path: Path) -> None:
    start = threading.Barrier(4)

    def build() -> Path:
        start.wait()
        return build_kernel(find_naive(), tmp_path)

    with ThreadPoolExecutor(4) as pool:
        paths = {f.result() for f in [pool.submit(build) for _ in range(4)]}
    assert len(paths) == 1 and len(compilations) == 1


def test_a_damaged_library_is_built_again(compilations: list[str], tmp_path: Path) -> None:
    path = build_kernel(find_naive(), tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    assert build_kernel(find_naive(), tmp_path) == path
    assert len(compilations) == 2
    assert path.stat().st_size > 1000


def test_a_build_that_is_cut_short_leaves_nothing(
    library: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def write_half(kernel: FrozenKernel, toolchain: Any, scratch: Path) -> Path:
        (scratch / library.name).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building, "compile_kernel", write_half)
        with pytest.raises(KeyboardInterrupt):
            build_kernel(find_naive(), tmp_path)
    assert [p.name for p in (tmp_path / "frozen" / "softmax").iterdir() if not p.name.endswith(".lock")] == []
    assert build_kernel(find_naive(), tmp_path).is_file()


def test_a_source_that_is_not_what_was_sealed_is_named(tmp_path: Path) -> None:
    kernel = find_naive()
    folder = tmp_path / kernel.name
    shutil.copytree(kernel.folder, folder)
    source = folder / "sources" / "softmax" / "kernels.cu"
    source.write_text(source.read_text() + "\n")
    with pytest.raises(FrozenError, match=r"sources/softmax/kernels.cu: is not what was sealed"):
        build_kernel(replace(kernel, folder=folder), tmp_path)
    source.unlink()
    with pytest.raises(FrozenError, match=r"sources/softmax/kernels.cu: is missing"):
        build_kernel(replace(kernel, folder=folder), tmp_path)


def with_build(kernel: FrozenKernel, **facts: Any) -> FrozenKernel:
    return replace(kernel, manifest={**kernel.manifest, "build": {**kernel.manifest["build"], **facts}})


def test_other_machine_code_is_refused_with_the_compiler_to_take(compilations: list[str], tmp_path: Path) -> None:
    other = with_build(find_naive(), machine_code={"sm_90a": "0" * 64}, toolchain={"nvcc": "13.0.1", "cxx": "g++"})
    with pytest.raises(FrozenError, match=r"build/machine_code: nvcc .* pip install nvidia-cuda-nvcc==13.0.1"):
        build_kernel(other, tmp_path)
    assert list((tmp_path / "frozen" / "softmax").glob("naive*")) == []


def test_what_does_not_compile_is_an_error_with_the_compilers_text(tmp_path: Path) -> None:
    kernel = find_naive()
    broken = with_build(kernel, flags=[f for f in kernel.manifest["build"]["flags"] if not f.startswith("-DAICF_KERNEL")])
    with pytest.raises(BuildError, match=r"does not compile from its sealed sources:(?s:.*)error"):
        build_kernel(broken, tmp_path)


def test_a_cache_that_cannot_be_written_is_named(library: Path, tmp_path: Path) -> None:
    (tmp_path / "frozen").write_text("in the way")
    with pytest.raises(BuildError, match=r"point AICF_CACHE_DIR elsewhere"):
        build_kernel(find_naive(), tmp_path)
