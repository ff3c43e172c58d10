"""Accuracy of every kernel of elementwise over the problems of its chains; masks by the counter alone, special values, and liars."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.discover import load_peers
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem, Variant
from harness.spec.dtypes import find_dtype
from harness.spec.expressions import Chain, Draws, evaluate
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

FOLDER = Path(__file__).parent
UNDER_TEST = OpUnderTest(FOLDER)
OP = UNDER_TEST.op
# The chain with most of what there is: a value per column, one in all, what is drawn, several inputs.
CHAIN = "bias_dropout_residual"
VARIANTS = {v.kernel: v for v in OP.variants if f"/{CHAIN}_" in v.name}
GENERAL = OP.select_variants(["streamed/relu_threads256_packs2_blocks0", "streamed/sgd_threads256_packs2_blocks0"])
BENCH = [p for p in OP.select_problems("bench") if p.attributes["chain"] in (CHAIN, "add")]

Open = Callable[[Variant], Launchable]
Thin = Callable[[Effort], Effort]
Array = NDArray[np.generic]


@pytest.fixture(scope="module")
def open_variant(device: Device) -> Open:
    return UNDER_TEST.open([*VARIANTS.values(), *GENERAL])


@pytest.mark.parametrize("variant", [*VARIANTS.values(), *GENERAL], ids=lambda v: v.name)
def test_kernel_verifies_on_every_problem_of_its_chain(device: Device, open_variant: Open, variant: Variant, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, variant, open_variant(variant), thin(Effort(num_hidden=2)))
    assert len(problems) >= 6 and all(p.status == "passed" for p in problems)


def test_a_kernel_serves_its_chain_alone(device: Device, open_variant: Open) -> None:
    variant = open_variant(GENERAL[0])
    x, y = (device.allocate(4096).view((4, 8), np.float32) for _ in range(2))
    rest = {t.name: None for t in OP.tensors if t.name not in ("in0", "out0")}
    assert variant.supports(in0=x, out0=y, chain="relu", **rest) == ""
    assert "computes chain 5, relu, alone" in variant.supports(in0=x, out0=y, chain="silu", **rest)
    with pytest.raises(ValueError, match=r"^out0: expected memory of its own, got an array that overlaps in0"):
        variant.supports(in0=x, out0=x, chain="relu", **rest)
    with pytest.raises(ValueError, match=r"^in1: expected None"):
        variant.supports(in0=x, out0=y, chain="relu", **rest | {"in1": x})
    with pytest.raises(ValueError, match=r"^chain: expected one of add, mul"):
        variant.supports(in0=x, out0=y, chain="cube", **rest)


def _run(device: Device, variant: Launchable, problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
    with Case(device, OP, problem) as case:
        case.upload(inputs)
        case.launch(variant, device.create_stream(non_blocking=True))
        device.synchronize()
        return case.read_outputs()


def _drop(device: Device, variant: Launchable, shape: tuple[int, int], counter: tuple[int, int], dtype: str = "float32") -> Array:
    """Return what becomes of ones under dropout of a half: 0 or 2, with nothing added."""
    rows, columns = shape
    problem = Problem({"rows": rows, "columns": columns}, {"chain": CHAIN, "dtype": dtype})
    ones, zeros = np.ones(shape, find_dtype(dtype)), np.zeros(shape, find_dtype(dtype))
    inputs = {"in0": ones, "in1": zeros[:1], "in2": zeros, "in3": np.array([[0.5]], np.float32), "counter": np.array(counter, np.int64)}
    return _run(device, variant, problem, inputs)["out0"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_mask_follows_from_the_counter_alone(device: Device, open_variant: Open, dtype: str) -> None:
    chain = next(c for c in OP.chains if c.name == CHAIN)
    for shape, counter in (((3, 50), (7, 1)), ((1, 1027), (-5, 2**40 + 3)), ((40, 8), (2**62, -1))):
        elements = np.arange(shape[0] * shape[1]).reshape(shape)
        inputs = {"x": np.ones(shape), "b": np.zeros((1, 1)), "r": np.zeros((1, 1)), "p": np.full((1, 1), 0.5)}
        expected = evaluate(chain, inputs, Draws(*counter, elements))["y"]
        for variant in VARIANTS.values():
            np.testing.assert_array_equal(_drop(device, open_variant(variant), shape, counter, dtype).astype(np.float64), expected)
        assert 0.3 < (expected != 0.0).mean() < 0.7


def test_another_offset_or_seed_draws_another_mask(device: Device, open_variant: Open) -> None:
    variant = open_variant(VARIANTS["streamed"])
    masks = [_drop(device, variant, (4, 64), counter) for counter in ((1, 1), (1, 2), (2, 1), (1, 1 + 2**32), (1 + 2**32, 1))]
    for i, mask in enumerate(masks):
        assert all(not np.array_equal(mask, other) for other in masks[:i])


def test_special_values_go_through(device: Device, open_variant: Open) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40, 3e38]], np.float32)
    problem = Problem({"rows": 1, "columns": 7}, {"chain": "relu", "dtype": "float32"})
    y = _run(device, open_variant(GENERAL[0]), problem, {"in0": x})["out0"]
    np.testing.assert_array_equal(y, np.array([[np.nan, np.inf, 0.0, 0.0, x[0, 4], 0.0, x[0, 6]]], np.float32))


def test_a_permutation_of_rows_permutes_results(device: Device, open_variant: Open) -> None:
    problem = Problem({"rows": 13, "columns": 33}, {"chain": "sgd", "dtype": "bfloat16"})
    inputs = make_inputs(OP, problem, "normal")
    order = np.random.default_rng(1).permutation(13)
    moved = {name: a[order] if a.shape[0] == 13 else a for name, a in inputs.items()}
    first, second = (_run(device, open_variant(GENERAL[1]), problem, each) for each in (inputs, moved))
    for name in first:
        np.testing.assert_array_equal(first[name][order], second[name])


@pytest.mark.parametrize("chain", OP.chains, ids=lambda c: c.name)
def test_a_peer_computes_its_chain(chain: Chain) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    load_peers(FOLDER)
    run = sys.modules["_aicf_ops_elementwise.peers"].write_run(torch, chain)
    rng, sizes = np.random.default_rng(0), {"rows": 5, "columns": 12, 1: 1}
    inputs: dict[str, Array] = {o.name: rng.standard_normal([sizes[s] for s in o.shape], np.float32) for o in chain.inputs}
    inputs |= {o.name: inputs[o.name] > 0.0 for o in chain.inputs if o.kind == "bool"}
    # PyTorch draws from another generator: nothing is dropped.
    inputs |= {o.name: np.zeros((1, 1), np.float32) for i, o in enumerate(chain.inputs) if chain.has_share(i)}
    outputs = [torch.empty((5, 12), dtype=torch.bool if o.kind == "bool" else torch.float32) for o in chain.outputs]
    run(*map(torch.from_numpy, inputs.values()), *outputs)
    expected = evaluate(chain, inputs, Draws(1, 2, np.arange(60).reshape(5, 12)))
    for operand, found in zip(chain.outputs, outputs, strict=True):
        np.testing.assert_allclose(found.numpy(), expected[operand.name], rtol=1e-5, atol=1e-5)


# A change of the sources each, and the word that verify finds for it: none shows in another op's tests.
LIARS = {
    "same_word_for_four": (
        "../common/philox.cuh",
        "take_word(draw_block(counter, element / 4, draw), static_cast<unsigned>(element % 4))",
        "draw_block(counter, element / 4, draw).x",
    ),
    "ignores_offset": ("../common/philox.cuh", "static_cast<std::uint32_t>(counter.offset >> 32)}", "0}"),
    "column_for_row": (
        "kernels.cu",
        "if constexpr (kExtent == Extent::kColumns) return column;",
        "if constexpr (kExtent == Extent::kColumns) return 0;",
    ),
    "flat_in_spite_of_gaps": (
        "launcher.cu",
        "for (const std::int64_t stride : arrays.out_strides) is_flat = is_flat && stride == arrays.columns;",
        "",
    ),
    "number_by_row_of_its_stride": (
        "kernels.cu",
        "static_cast<std::uint64_t>(row) * arrays.columns + column",
        "static_cast<std::uint64_t>(row) * arrays.out_strides[0] + column",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_is_refused(device: Device, tmp_path: Path, liar: str) -> None:
    name, honest, lie = LIARS[liar]
    shutil.copytree(FOLDER, tmp_path / "elementwise", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(FOLDER.parent / "common", tmp_path / "common")
    source = tmp_path / "elementwise" / name
    text = source.read_text()
    assert honest in text
    source.write_text(text.replace(honest, lie))
    liars = OpUnderTest(tmp_path / "elementwise")
    variant = VARIANTS["streamed"] if "flat" not in liar else GENERAL[0]
    result = Verifier(liars.op, device, Effort(num_drawn=12)).verify(variant, liars.open([variant])(variant))
    assert not result.ok
    assert {f.kind.value for f in result.all_faults} & {"mismatch", "not_written", "guard_overwritten"}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
def test_speed(gpu_benchmark: GpuBenchmark, problem: Problem, mode: Mode) -> None:
    (variant,) = OP.select_variants([f"streamed/{problem.attributes['chain']}_threads256_packs2_blocks0"])
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, UNDER_TEST.open([variant])(variant), mode)
