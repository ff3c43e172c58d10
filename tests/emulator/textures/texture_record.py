"""Record what an NVIDIA GPU gives for texture fetches and surface operations: ``python texture_record.py --output FILE.npz``.

Needs a GPU, nvcc of CUDA 13.0 and NumPy; nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "opcodes"))
from record import describe, find_runtime
from texture_corpus import (
    NUM_POINTS,
    SURFACE_HEIGHT,
    SURFACE_POINTS,
    SURFACE_WIDTH,
    Case,
    Surface,
    make_corpus,
    make_pixels,
    make_points,
    make_surface_inputs,
    make_surfaces,
)

GENCODE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")


def compile_cases(nvcc: str, folder: Path, gencode: tuple[str, ...] = GENCODE) -> Path:
    """Compile ``cases.cu`` to a shared object."""
    made, library = folder / "cases.o", folder / "cases.so"
    flags = ("-Xcompiler", "-fPIC", "-std=c++20", "-O3", "-cudart", "shared")
    for command in (
        [nvcc, *flags, *gencode, "-c", str(Path(__file__).with_name("cases.cu")), "-o", str(made)],
        ["g++", "-shared", str(made), str(find_runtime(nvcc)), "-o", str(library)],
    ):
        subprocess.run(command, check=True)
    return library


def _upload(runtime: ctypes.CDLL, values: NDArray[Any]) -> c_void_p:
    address = c_void_p()
    if runtime.cudaMalloc(byref(address), c_size_t(values.nbytes)) or runtime.cudaMemcpy(
        address, values.ctypes.data_as(c_void_p), c_size_t(values.nbytes), 1
    ):
        raise RuntimeError("no device memory")
    return address


def _download(runtime: ctypes.CDLL, address: c_void_p, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    values = np.empty(shape, np.uint32)
    if runtime.cudaMemcpy(values.ctypes.data_as(c_void_p), address, c_size_t(values.nbytes), 2):
        raise RuntimeError("cudaMemcpy failed")
    runtime.cudaFree(address)
    return values


def run_case(case: Case, library: ctypes.CDLL, runtime: ctypes.CDLL) -> NDArray[np.uint32]:
    """Return words [points, 4] that the fetches give."""
    pixels = make_pixels(case)
    points, out = _upload(runtime, make_points(case)), _upload(runtime, np.zeros((NUM_POINTS, 4), np.uint32))
    status = library.texture_run(byref(case.to_c()), pixels.ctypes.data_as(c_void_p), points, out, c_int(NUM_POINTS))
    if status:
        raise RuntimeError(f"{case.name}: {status}")
    runtime.cudaFree(points)
    return _download(runtime, out, (NUM_POINTS, 4))


def run_surface(surface: Surface, library: ctypes.CDLL, runtime: ctypes.CDLL) -> NDArray[np.uint32]:
    """Return what came back [points, 4], then the surface, as words one after another."""
    pixels, places, values = make_surface_inputs(surface)
    kernels = sorted({s.kernel for s in make_surfaces()}, key=[s.kernel for s in make_surfaces()].index)
    out, after = _upload(runtime, np.zeros((SURFACE_POINTS, 4), np.uint32)), np.zeros_like(pixels)
    at, data = _upload(runtime, places), _upload(runtime, values)
    numbers = (kernels.index(surface.kernel), *surface.format, SURFACE_WIDTH, SURFACE_HEIGHT)
    status = library.surface_run(
        *numbers, pixels.ctypes.data_as(c_void_p), at, data, out, after.ctypes.data_as(c_void_p), c_int(SURFACE_POINTS)
    )
    if status:
        raise RuntimeError(f"{surface.name}: {status}")
    runtime.cudaFree(at), runtime.cudaFree(data)
    return np.concatenate([_download(runtime, out, (SURFACE_POINTS * 4,)), after.view(np.uint32)])


def run_all(library: ctypes.CDLL, runtime: ctypes.CDLL) -> dict[str, NDArray[np.uint32]]:
    """Return the words of every case by name; a case that the device refuses is missing, and said so."""
    found: dict[str, NDArray[np.uint32]] = {}
    formatted_last = sorted(make_surfaces(), key=lambda surface: "_p" in surface.kernel)  # where a device might give up
    for item in (*make_corpus(), *formatted_last):
        try:
            found[item.name] = run_case(item, library, runtime) if isinstance(item, Case) else run_surface(item, library, runtime)
        except RuntimeError as error:
            print(f"REFUSED {error}")
            runtime.cudaGetLastError()
    return found


def main() -> None:
    """Compile, run, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    arguments = parser.parse_args()
    runtime = ctypes.CDLL(str(find_runtime(arguments.nvcc)), ctypes.RTLD_GLOBAL)  # before anything that links to it
    with tempfile.TemporaryDirectory() as folder:
        results = run_all(ctypes.CDLL(str(compile_cases(arguments.nvcc, Path(folder)))), runtime)
    names = list(results)
    sizes = [results[name].size for name in names]
    words = np.concatenate([results[name].ravel() for name in names])
    np.savez_compressed(
        arguments.output, about=np.array(describe(arguments.nvcc)), names=np.array(names), sizes=np.array(sizes), words=words
    )
    print(f"{len(names)} cases: {arguments.output}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
