"""Dropout in the epilogue of gemm_bias_act: the mask that elementwise draws, samples of it, and kernels that lie about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from contract.expressions.philox import draw_words, find_kept
from device import Device
from harness.spec import Launchable, Problem, Variant
from harness.spec.dtypes import find_dtype
from harness.testing import OpUnderTest
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent, has_machine_code=True)
OP = UNDER_TEST.op


def find_pipelined(splits: int) -> Variant:
    """Return the first listed variant of kernel pipelined that has so many splits."""
    kernel = OP.find_kernel("pipelined")
    return next(v for v in map(kernel.bind, kernel.variants) if v.tunables["splits"] == splits)


DROPPING = {"naive": "float32", "pipelined": "float32", "split": "float32", "mma": "bfloat16"}
VARIANTS = {
    **{name: OP.find_kernel(name).bind(OP.find_kernel(name).variants[-1]) for name in ("naive", "mma")},
    # Whole sums, and sums of four blocks that one of them stores: the second takes three times as long to compile.
    **{name: find_pipelined(splits) for name, splits in (("pipelined", 1), ("split", 4))},
}
# One element at a time. Four, which may begin anywhere in a block of random numbers, pairs of 16 bits and split sums are slow.
FAST_KERNELS = ("naive",)

Array = NDArray[np.float64]
Open = Callable[[str], Launchable]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def _drop_ones(device: Device, variant: Launchable, dtype: str, shape: tuple[int, int], counter: tuple[int, int], p: float) -> Array:
    """Return what becomes of ones under dropout, in float64; rows of Y are padded, which no element's number must show."""
    (m, n), attributes = shape, {"dtype": dtype, "with_dropout": True}
    a, b = (np.ones(each, find_dtype(dtype)) for each in ((m, 1), (1, n)))
    inputs = {"a": a, "b": b, "p": np.array(p, np.float32), "counter": np.array(counter, np.int64)}
    return UNDER_TEST.launch(device, variant, Problem({"M": m, "N": n, "K": 1}, attributes, {"y": 3}), inputs)["y"].astype(np.float64)


@pytest.mark.parametrize(("kernel", "dtype"), DROPPING.items())
def test_dropout_is_that_of_elementwise(device: Device, open_kernel: Open, kernel: str, dtype: str) -> None:
    """An element is dropped by its number in Y alone, and of the same counter by the same words."""
    variant = open_kernel(kernel)
    for shape, counter in (((3, 50), (7, 1)), ((2, 131), (-5, 2**40 + 3)), ((37, 8), (2**62, -1))):
        elements = np.arange(shape[0] * shape[1]).reshape(shape)
        kept = find_kept(draw_words(elements, *counter), 0.5)
        np.testing.assert_array_equal(_drop_ones(device, variant, dtype, shape, counter, 0.5), np.where(kept, 2.0, 0.0))
        assert 0.3 < kept.mean() < 0.7
    assert (_drop_ones(device, variant, dtype, (3, 50), (7, 1), 0.0) == 1.0).all()
    assert (_drop_ones(device, variant, dtype, (3, 50), (7, 1), 1.0) == 0.0).all()


def test_a_sample_of_dropped_outputs_is_part_of_the_whole() -> None:
    problem = Problem({"M": 9, "N": 14, "K": 5}, {"act": "relu", "with_dropout": True})
    inputs = make_inputs(OP, problem)
    whole, rows, columns = OP.reference(inputs, problem)["y"], np.array([1, 4, 8]), np.array([0, 3, 13])
    assert OP.sampling is not None
    part, smaller = OP.sampling.restrict(inputs, problem, 0, rows)
    part, smallest = OP.sampling.restrict(part, smaller, 1, columns)
    np.testing.assert_allclose(OP.reference(part, smallest)["y"], whole[np.ix_(rows, columns)], rtol=1e-12)
    assert 0 < (whole == 0.0).sum() < whole.size


# A change of the sources each, which verify finds.
LIARS = {
    "numbers_by_stride": ("tiles.cuh", "static_cast<std::uint64_t>(gemm.n) +", "static_cast<std::uint64_t>(gemm.ldy) +"),
    "keeps_what_is_dropped": ("../common/philox.cuh", "y * (1.0f / (1.0f - p)) : 0.0f", "y * (1.0f / (1.0f - p)) : y"),
    "forgets_to_scale": ("../common/philox.cuh", "? y * (1.0f / (1.0f - p))", "? y"),
    "one_block_of_words": ("../common/philox.cuh", "draw_block(*dropout.counter, first / 4 + 1, 0)", "block"),
    "drops_z_too": ("tiles.cuh", "gemm.z[row * gemm.ldz + column] = z;", "gemm.z[row * gemm.ldz + column] = kDrops ? 0.0f : z;"),
}


@pytest.mark.parametrize("liar", [pytest.param(n, marks=[pytest.mark.slow] * (n != "numbers_by_stride")) for n in LIARS])
def test_a_liar_about_dropout_is_refused(device: Device, tmp_path: Path, liar: str) -> None:
    name, honest, lie = LIARS[liar]
    for folder in ("gemm_bias_act", "common"):
        shutil.copytree(UNDER_TEST.loaded.folder.parent / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "gemm_bias_act" / name
    text = source.read_text()
    assert text.count(honest) == 1
    source.write_text(text.replace(honest, lie))
    liars = OpUnderTest(tmp_path / "gemm_bias_act")
    # naive draws for one element at a time, mma for pairs, which may begin at the end of four.
    variant = VARIANTS["mma" if liar == "one_block_of_words" else "naive"]
    dropping = replace(liars.op, problems=tuple(p for p in liars.op.problems if "with_dropout" in p.name), goals=(), population=None)
    result = Verifier(dropping, device, Effort(num_drawn=0, num_hidden=0)).verify(variant, liars.open([variant])(variant))
    assert not result.ok
    assert "mismatch" in {f.kind.value for f in result.all_faults}
