"""Sparse matrix instructions: every form of the corpus against NumPy, and bit for bit against an H200 (``goldens/tensor_sparse.npz``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device.toolchain import find_toolchain

from .cuda_runtime import Runtime
from .ptx_kernels import refusal, text_of
from .test_opcodes import FOLDER, _load

_load("record")
_load("tensor_sparse")
GOLDENS = FOLDER.parents[1] / "goldens/tensor_sparse.npz"
corpus = _load("tensor_corpus")
record = _load("tensor_record")
CORPUS = corpus.make_sparse_corpus()


@pytest.fixture(scope="module")
def results(_loaded_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[np.uint64]]:
    """Result patterns [cases, m, n] of the device under test, by name."""
    gencode = ("-gencode", "arch=compute_90a,code=compute_90a") if _loaded_runtime.is_emulated else record.GENCODE
    libraries = record.compile_corpus(CORPUS, str(find_toolchain().nvcc), tmp_path_factory.mktemp("tensor"), gencode, chunks=1)
    found: dict[str, NDArray[np.uint64]] = record.run_corpus(CORPUS, libraries, _loaded_runtime.library)
    return found


@pytest.fixture(scope="module")
def goldens() -> dict[str, NDArray[np.uint64]]:
    """Recorded patterns [cases, m, n] by name."""
    with np.load(GOLDENS) as file:
        found: dict[str, NDArray[np.uint64]] = corpus.unpack_results(CORPUS, file)
    return found


@pytest.mark.parametrize("form", CORPUS, ids=[form.name for form in CORPUS])
def test_bits_agree_with_gpu(form: Any, results: dict[str, NDArray[np.uint64]], goldens: dict[str, NDArray[np.uint64]]) -> None:
    wrong = np.argwhere(goldens[form.name] != results[form.name])
    assert not len(wrong), f"{len(wrong)} of {results[form.name].size} differ, first at {wrong[0]}"


@pytest.mark.parametrize("form", CORPUS, ids=[form.name for form in CORPUS])
def test_ordinary_inputs_give_what_numpy_gives(form: Any, results: dict[str, NDArray[np.uint64]]) -> None:
    """Which elements meet: the metadata's layout, the selector and the operands' layouts."""
    assert record.worst_error(form, results[form.name]) <= record.error_limit(form)


def test_comparison_tells_other_metadata() -> None:
    """The reference depends on what is stored where."""
    form = CORPUS[0]
    other = record.reference(form)[0].copy()
    units = corpus.make_units(form)
    units[..., 0], units[..., 1] = units[..., 1].copy(), units[..., 0].copy()
    left = corpus.expand(corpus.to_values(corpus.make_matrices(form)[0], form.a), units, form.k, 1)
    swapped = (left @ corpus.to_values(corpus.make_matrices(form)[1], form.b).transpose(0, 2, 1))[0]
    assert not np.allclose(swapped + corpus.to_values(corpus.make_matrices(form)[2], form.d)[0], other)


def sparse(shape: str, a: str, b: str, selector: str) -> str:
    return f"mma.sp.sync.aligned.{shape}.row.col.f32.f16.f16.f32 {{%f0,%f1,%f2,%f3}},{{{a}}},{{{b}}},{{%f0,%f1,%f2,%f3}},%r5,{selector};"


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        (sparse("m16n8k16", "%r1,%r2", "%r3,%r4", "4"), "at most 3"),
        (sparse("m16n8k32", "%r1,%r2,%r1,%r2", "%r3,%r4,%r3,%r4", "2"), "at most 1"),
        (sparse("m16n8k16", "%r1,%r2", "%r3,%r4", "%r6"), "constant"),
        (sparse("m16n8k8", "%r1", "%r3", "0"), "shape"),
    ],
)
def test_forms_that_do_not_exist_are_refused(emulator: Runtime, instruction: str, reason: str) -> None:
    assert not refusal(emulator, text_of(sparse("m16n8k16", "%r1,%r2", "%r3,%r4", "3")))
    assert reason in refusal(emulator, text_of(instruction))
