"""Record what an NVIDIA GPU computes for every instruction of the corpus: ``python tests/emulator/opcodes/record.py``.

Needs a GPU, the compiler of CUDA 13.0 on the PATH, and NumPy; nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from corpus import BLOCK, NUM_ELEMS, Instruction, make_corpus, make_inputs, pack_results, write_module

KERNELS_PER_MODULE = 128


def compile_modules(corpus: list[Instruction], ptxas: str, folder: Path) -> list[bytes]:
    """Assemble the corpus. Raises RuntimeError with the assembler's text."""

    def compile_one(first: int) -> bytes:
        source, made = folder / f"opcodes{first}.ptx", folder / f"opcodes{first}.cubin"
        source.write_text(write_module(_number(corpus, first)))
        done = subprocess.run([ptxas, "-arch=sm_90a", str(source), "-o", str(made)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ptxas failed:\n{done.stdout}{done.stderr}")
        return made.read_bytes()

    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_one, range(0, len(corpus), KERNELS_PER_MODULE)))


def write_modules(corpus: list[Instruction]) -> list[bytes]:
    """Return the corpus as PTX, for a device that takes it as it is."""
    return [write_module(_number(corpus, first)).encode() + b"\0" for first in range(0, len(corpus), KERNELS_PER_MODULE)]


def _number(corpus: list[Instruction], first: int) -> list[tuple[int, Instruction]]:
    return list(enumerate(corpus[first : first + KERNELS_PER_MODULE], first))


def find_runtime(nvcc: str) -> Path:
    """Return the CUDA runtime that belongs to nvcc's toolkit."""
    root = Path(nvcc).resolve().parent.parent
    for folder in ("targets/x86_64-linux/lib", "lib64", "lib"):
        if (root / folder / "libcudart.so.13").exists():
            return root / folder / "libcudart.so.13"
    raise RuntimeError(f"no libcudart.so.13 below {root}")


class Dim3(ctypes.Structure):
    """A grid or a block, by value."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def run_corpus(corpus: list[Instruction], modules: list[bytes], runtime: ctypes.CDLL) -> NDArray[np.uint64]:
    """Return results [instructions, elements] of the device that ``runtime`` drives."""

    def check(status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{what}: CUDA error {status}")

    libraries = []
    for module in modules:
        libraries.append(ctypes.c_void_p())
        check(runtime.cudaLibraryLoadData(ctypes.byref(libraries[-1]), module, None, None, 0, None, None, 0), "cudaLibraryLoadData")
    size = NUM_ELEMS * 8
    pointers = [ctypes.c_void_p() for _ in range(4)]
    for pointer in pointers:
        check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), "cudaMalloc")
    for pointer, row in zip(pointers, make_inputs(), strict=False):
        check(runtime.cudaMemcpy(pointer, row.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(size), 1), "cudaMemcpy")
    arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(pointer) for pointer in pointers))
    grid, block = Dim3(NUM_ELEMS // BLOCK, 1, 1), Dim3(BLOCK, 1, 1)
    results = np.empty((len(corpus), NUM_ELEMS), np.uint64)
    for index, instruction in enumerate(corpus):
        kernel = ctypes.c_void_p()
        library = libraries[index // KERNELS_PER_MODULE]
        check(runtime.cudaLibraryGetKernel(ctypes.byref(kernel), library, f"op_{index}".encode()), instruction.name)
        check(runtime.cudaLaunchKernel(kernel, grid, block, arguments, ctypes.c_size_t(0), None), instruction.name)
        target = results[index].ctypes.data_as(ctypes.c_void_p)
        check(runtime.cudaMemcpy(target, pointers[3], ctypes.c_size_t(size), 2), instruction.name)
    for pointer in pointers:
        check(runtime.cudaFree(pointer), "cudaFree")
    for library in libraries:
        check(runtime.cudaLibraryUnload(library), "cudaLibraryUnload")
    return results


def describe(nvcc: str) -> str:
    """Return GPU, driver, compiler and date in words."""
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()[-2]
    return f"{gpu.stdout.strip()}; {version}; {dt.datetime.now(dt.UTC):%Y-%m-%d}"


def main() -> None:
    """Compile, run, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parents[2] / "goldens/arithmetic.npz")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    arguments = parser.parse_args()
    corpus = make_corpus()
    runtime = ctypes.CDLL(str(find_runtime(arguments.nvcc)), ctypes.RTLD_GLOBAL)  # before anything that links to it
    with tempfile.TemporaryDirectory() as folder:
        modules = compile_modules(corpus, str(Path(arguments.nvcc).with_name("ptxas")), Path(folder))
        results = run_corpus(corpus, modules, runtime)
    about = describe(arguments.nvcc)
    np.savez_compressed(arguments.output, about=np.array(about), **pack_results(corpus, results))
    print(f"{len(corpus)} instructions on {about}: {arguments.output}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
