"""Record what an NVIDIA GPU computes for every matrix instruction: ``python tests/emulator/opcodes/tensor_record.py --output FILE.npz``.

Needs a GPU of compute capability 9.0, nvcc of CUDA 13.0, and NumPy; nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from record import describe, find_runtime
from tensor_corpus import (
    BITS,
    Form,
    make_corpus,
    make_inputs,
    make_sparse_corpus,
    pack_results,
    reference,
    to_matrix,
    to_values,
    write_source,
)

FLAGS = ("-Xcompiler", "-fPIC", "-std=c++20", "-O3", "-cudart", "shared", "--compress-mode=none")
GENCODE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")


def compile_corpus(
    corpus: list[Form], nvcc: str, folder: Path, gencode: tuple[str, ...] = GENCODE, chunks: int = 8
) -> list[tuple[Path, range]]:
    """Compile the forms into some shared objects; returns each with the indices that it has."""
    runtime = find_runtime(nvcc)

    def compile_one(chunk: int) -> tuple[Path, range]:
        mine = range(chunk, len(corpus), chunks)
        source, made, library = (folder / f"tensor{chunk}.{ending}" for ending in ("cu", "o", "so"))
        source.write_text(write_source([(i, corpus[i]) for i in mine]))
        for command in (
            [nvcc, *FLAGS, *gencode, "-c", str(source), "-o", str(made)],
            ["g++", "-shared", str(made), str(runtime), "-o", str(library)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
        return library, mine

    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_one, range(chunks)))


def run_form(form: Form, index: int, library: ctypes.CDLL, runtime: ctypes.CDLL) -> NDArray[np.uint64]:
    """Return patterns [cases, m, n] that the device gives."""

    def check(status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{form.name}: {what}: CUDA error {status}")

    *arrays, left, right = make_inputs(form)
    pointers = []
    sizes = [array.nbytes for array in arrays] + [form.cases * form.words * 4]
    for size in sizes:
        pointer = ctypes.c_void_p()
        check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), "cudaMalloc")
        pointers.append(pointer)
    for pointer, array in zip(pointers, arrays, strict=False):
        raw = np.ascontiguousarray(array)
        check(runtime.cudaMemcpy(pointer, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(raw.nbytes), 1), "cudaMemcpy")
    check(library.tensor_run(index, *pointers, ctypes.c_ulonglong(left), ctypes.c_ulonglong(right)), "the kernel")
    result = np.empty(arrays[2].shape, np.uint8)
    check(runtime.cudaMemcpy(result.ctypes.data_as(ctypes.c_void_p), pointers[3], ctypes.c_size_t(result.nbytes), 2), "cudaMemcpy")
    for pointer in pointers:
        check(runtime.cudaFree(pointer), "cudaFree")
    return to_matrix(result, form)


def worst_error(form: Form, bits: NDArray[np.uint64]) -> float:
    """Return the largest error relative to the largest result of a case, over the ordinary cases: a check of layouts, not of rounding."""
    want, got = reference(form), to_values(bits, form.d)
    if form.d == "s32" and "satfinite" not in form.flags:
        want = (want + 2.0**31) % 2.0**32 - 2.0**31
    elif form.d == "s32":
        want = np.clip(want, -(2.0**31), 2.0**31 - 1)
    ordinary = [0] if BITS[form.a] >= 8 and form.d != "s32" else range(form.cases)
    scale = np.abs(want[ordinary]).max(axis=(1, 2), keepdims=True) + 1e-30
    return float((np.abs(got[ordinary] - want[ordinary]) / scale).max())


def error_limit(form: Form) -> float:
    """Return what :func:`worst_error` may be."""
    return {"s32": 0.0, "f64": 1e-14, "f16": 4e-3}.get(form.d, 1e-3 if BITS[form.a] == 8 else 1e-6)


def run_corpus(corpus: list[Form], libraries: list[tuple[Path, range]], runtime: ctypes.CDLL) -> dict[str, NDArray[np.uint64]]:
    """Return the patterns [cases, m, n] that the device gives, by the forms' names, in the corpus' order."""
    found: dict[int, NDArray[np.uint64]] = {}
    for path, mine in libraries:
        library = ctypes.CDLL(str(path))
        for index in mine:
            found[index] = run_form(corpus[index], index, library, runtime)
    return {form.name: found[index] for index, form in enumerate(corpus)}


def main() -> None:
    """Compile, run, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[2] / "goldens/tensor.npz")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--family", choices=("mma", "wgmma"), help="only these (the tests want a file with both)")
    parser.add_argument("--sparse", action="store_true", help="the sparse forms, for a file of their own")
    arguments = parser.parse_args()
    corpus = [form for form in (make_sparse_corpus() if arguments.sparse else make_corpus()) if arguments.family in (None, form.family)]
    runtime = ctypes.CDLL(str(find_runtime(arguments.nvcc)), ctypes.RTLD_GLOBAL)  # before anything that links to it
    with tempfile.TemporaryDirectory() as folder:
        results = run_corpus(corpus, compile_corpus(corpus, arguments.nvcc, Path(folder)), runtime)
    for form in corpus:
        if not (error := worst_error(form, results[form.name])) <= error_limit(form):
            print(f"SUSPECT {form.name}: error {error}")
    about = describe(arguments.nvcc)
    np.savez_compressed(arguments.output, about=np.array(about), **pack_results(corpus, list(results.values())))
    print(f"{len(corpus)} forms on {about}: {arguments.output}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
