"""Record what an NVIDIA GPU computes for every instruction of the corpus: ``python tests/emulator/opcodes/record.py --output goldens.npz``.

Needs a GPU, nvcc of CUDA 13.0 on the PATH, and NumPy; nothing of this project's environment.
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
from corpus import CHUNKS, NUM_ELEMS, Instruction, find_chunk, make_corpus, make_inputs, pack_results, write_source

FLAGS = ("-Xcompiler", "-fPIC", "-std=c++20", "-O3", "-cudart", "shared", "--compress-mode=none")
GENCODE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")


def compile_chunks(corpus: list[Instruction], nvcc: str, folder: Path, gencode: tuple[str, ...] = GENCODE) -> list[Path]:
    """Compile the corpus into one shared object per chunk. Raises RuntimeError with the compiler's text."""
    runtime = find_runtime(nvcc)

    def compile_one(chunk: int) -> Path:
        source, made, library = (folder / f"opcodes{chunk}.{ending}" for ending in ("cu", "o", "so"))
        source.write_text(write_source(corpus, chunk))
        for command in (
            [nvcc, *FLAGS, *gencode, "-c", str(source), "-o", str(made)],
            ["g++", "-shared", str(made), str(runtime), "-o", str(library)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
        return library

    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_one, range(CHUNKS)))


def find_runtime(nvcc: str) -> Path:
    """Return the CUDA runtime that belongs to nvcc's toolkit."""
    root = Path(nvcc).resolve().parent.parent
    for folder in ("targets/x86_64-linux/lib", "lib64", "lib"):
        if (root / folder / "libcudart.so.13").exists():
            return root / folder / "libcudart.so.13"
    raise RuntimeError(f"no libcudart.so.13 below {root}")


def run_corpus(corpus: list[Instruction], libraries: list[Path], runtime: ctypes.CDLL) -> NDArray[np.uint64]:
    """Return results [instructions, elements] of the device that ``runtime`` drives."""

    def check(status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{what}: CUDA error {status}")

    loaded = [ctypes.CDLL(str(path)) for path in libraries]
    size = NUM_ELEMS * 8
    pointers = [ctypes.c_void_p() for _ in range(4)]
    for pointer in pointers:
        check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), "cudaMalloc")
    inputs = make_inputs()
    for pointer, row in zip(pointers, inputs, strict=False):
        check(runtime.cudaMemcpy(pointer, row.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(size), 1), "cudaMemcpy")
    results = np.empty((len(corpus), NUM_ELEMS), np.uint64)
    for index, instruction in enumerate(corpus):
        check(loaded[find_chunk(index)].opcode_run(index, *pointers, None), instruction.name)
        target = results[index].ctypes.data_as(ctypes.c_void_p)
        check(runtime.cudaMemcpy(target, pointers[3], ctypes.c_size_t(size), 2), instruction.name)
    for pointer in pointers:
        check(runtime.cudaFree(pointer), "cudaFree")
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
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("goldens.npz"))
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    arguments = parser.parse_args()
    corpus = make_corpus()
    runtime = ctypes.CDLL(str(find_runtime(arguments.nvcc)), ctypes.RTLD_GLOBAL)  # before anything that links to it
    with tempfile.TemporaryDirectory() as folder:
        libraries = compile_chunks(corpus, arguments.nvcc, Path(folder))
        results = run_corpus(corpus, libraries, runtime)
    about = describe(arguments.nvcc)
    np.savez_compressed(arguments.output, about=np.array(about), **pack_results(corpus, results))
    print(f"{len(corpus)} instructions on {about}: {arguments.output}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
