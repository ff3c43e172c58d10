"""Accuracy of every kernel of gemm_backward over the op's own problems, the reference beside finite differences, refusals, the binding."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem, SpecError
from harness.testing import OpUnderTest
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.plan import Effort
from harness.verify.reference import compute_expected

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
# One variant a kernel; the harness's own verify runs all of them.
VARIANTS = {k.name: k.bind(k.variants[0]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("plain", "wgmma")
FP32_KERNELS = ("plain", "ffma", "boxed_evenly")
BENCH = OP.select_problems("bench")
ACTS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(
        device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(max_extra_flops=1e5, num_hidden=2, max_hidden_flops=4e6))
    )
    served = [p for p in problems if p.status == "passed"]
    with_w = [p for p in problems if ("with_w" in p.problem) == (kernel != "streamed")]
    of_any_dtype = kernel in ("streamed", "tiny", "thin")
    wanted = [p for p in with_w if of_any_dtype or ("float32" in p.problem) == (kernel in FP32_KERNELS)]
    if kernel == "thin":
        wanted = [p for p in wanted if int(p.problem.split("_N")[1].split("_")[0]) <= 32]
    assert len(served) == len(wanted) or (served and kernel in ("wgmma", "turned_evenly", "boxed_evenly"))


@pytest.mark.slow  # compiles for other GPUs than the rest
@pytest.mark.parametrize("kernel", ["mma", "plain"])
def test_kernel_is_built_for_gpus_before_hopper(kernel: str) -> None:
    (result,) = UNDER_TEST.build([VARIANTS[kernel]], target="a100").values()
    assert result.library is not None, result.error


def test_fp32_needs_no_second_launch_where_a_cluster_has_all_rows(device: Device, open_kernel: Open) -> None:
    ffma = open_kernel("ffma")
    for m, n, k, strips in ((128, 10, 128, 0), (128, 128, 256, 0), (256, 64, 96, 0), (600, 10, 40, 3)):
        with Case(device, OP, Problem({"M": m, "N": n, "K": k}, {"act": "relu", "dtype": "float32"})) as case:
            assert ffma.workspace_bytes(**case.arguments) == 4 * strips * k


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_fp32_kernels_agree_but_for_roundings(device: Device, open_kernel: Open, layout: str) -> None:
    """Whatever is split over slices, clusters and strips: two orders of the same sums."""
    problem = Problem({"M": 300, "N": 70, "K": 45}, {"act": "gelu_tanh", "dtype": "float32", "w_layout": layout})
    inputs = make_inputs(OP, problem)
    plain, *others = (UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs) for kernel in FP32_KERNELS)
    for name, bound in OP.tolerance(inputs, OP.reference(inputs, problem), problem).items():
        for other in others:
            difference = np.abs(plain[name].astype(np.float64) - other[name])
            assert (difference <= 2.0 * bound).all()
            assert difference.max() > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_tiles_of_any_rows_that_boxed_evenly_may_take_are_right(device: Device, open_kernel: Open, layout: str) -> None:
    """Few rows are low tiles, whose k as many blocks share as it has steps for; either product may be launched first."""
    few = ((1, 100, 140), (32, 36, 100), (33, 260, 100), (65, 132, 100), (127, 68, 100))
    even = ((rows, 48, 260) for rows in (72, 80, 88, 96, 104, 112, 120, 128))
    for rows, n, k in (*few, *even):
        problem = Problem({"M": rows, "N": n, "K": k}, {"act": "gelu_tanh", "dtype": "float32", "w_layout": layout})
        inputs = make_inputs(OP, problem, "normal")
        exact = {name: values.astype(np.float64) for name, values in inputs.items()}
        expected = OP.reference(exact, problem)
        bounds = OP.tolerance(exact, expected, problem)
        for name, values in UNDER_TEST.launch(device, open_kernel("boxed_evenly"), problem, inputs).items():
            assert np.all(np.abs(values - expected[name]) <= bounds[name]), f"{name} of {rows} x {n} x {k}"


def _activate(act: str, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """The activations once more, as their definitions have them."""
    erf = np.vectorize(math.erf)
    if act == "relu":
        return np.maximum(z, 0.0)
    if act == "gelu_tanh":
        return np.asarray(0.5 * z * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3))))
    if act == "gelu_erf":
        return np.asarray(0.5 * z * (1.0 + erf(z / math.sqrt(2.0))))
    return np.asarray(z / (1.0 + np.exp(-z))) if act == "silu" else z


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("act", ACTS)
def test_reference_is_the_slope_of_a_loss(act: str, layout: str) -> None:
    rng = np.random.default_rng(0)
    problem = Problem({"M": 4, "N": 3, "K": 5}, {"act": act, "w_layout": layout})
    dy, w, z, bias = (rng.standard_normal(shape) for shape in ((4, 3), (5, 3), (4, 5), (5,)))

    def find_loss(at_z: NDArray[np.float64], at_bias: NDArray[np.float64], at_w: NDArray[np.float64]) -> float:
        return float((dy * (_activate(act, at_z + at_bias) @ at_w)).sum())

    inputs = {"dy": dy, "w": w.T if layout == "nk" else w, "x": _activate(act, z + bias)}
    inputs |= {"z": z + bias} if act != "none" else {}
    outputs = OP.reference(inputs, problem)
    dw = outputs["dw"].T if layout == "nk" else outputs["dw"]
    step = 1e-6
    for place, gradient in enumerate((outputs["dz"], outputs["dbias"], dw)):
        for index in np.ndindex(gradient.shape):
            losses = []
            for sign in (1.0, -1.0):
                moved = [z.copy(), bias.copy(), w.copy()]
                moved[place][index] += sign * step
                losses.append(find_loss(*moved))
            assert abs((losses[0] - losses[1]) / (2.0 * step) - gradient[index]) <= 1e-7 * (1.0 + abs(gradient[index]))


@pytest.mark.parametrize("act", ACTS[2:])
def test_slopes_have_their_limits(act: str) -> None:
    problem = Problem({"M": 6, "N": 1, "K": 1}, {"act": act, "with_dw": False, "with_dbias": False})
    z = np.array([[-math.inf], [-1e30], [0.0], [1e30], [math.inf], [math.nan]])
    dz = OP.reference({"dy": np.ones((6, 1)), "w": np.ones((1, 1)), "z": z}, problem)["dz"].ravel()
    np.testing.assert_allclose(dz, [0.0, 0.0, 0.5, 1.0, 1.0, math.nan], atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("plain", "float32"), ("ffma", "float32"), ("boxed_evenly", "float32"), ("mma", "float16"), ("tiny", "float16")]
)
def test_a_total_is_what_was_there_plus_the_gradient(device: Device, open_kernel: Open, kernel: str, dtype: str) -> None:
    of_total = Problem({"M": 200, "N": 37, "K": 66}, {"dtype": dtype, "accumulate": True})
    stored = Problem(of_total.sizes, {"dtype": dtype})
    inputs = make_inputs(OP, OP.complete(of_total))
    total = UNDER_TEST.launch(device, open_kernel(kernel), of_total, inputs)["dw_total"]
    others = {name: values for name, values in inputs.items() if name != "dw_total"}
    dw = UNDER_TEST.launch(device, open_kernel(kernel), stored, others)["dw"]
    wanted = inputs["dw_total"].astype(np.float64) + dw.astype(np.float64)
    if dtype == "float32":
        np.testing.assert_array_equal(total, wanted.astype(np.float32))
    else:  # dW itself is not rounded on its way
        np.testing.assert_allclose(total.astype(np.float64), wanted, rtol=2.0**-10, atol=2.0**-9 * np.abs(dw).max())


def test_relu_may_be_given_its_own_output(device: Device, open_kernel: Open) -> None:
    problem = Problem({"M": 40, "N": 24, "K": 72}, {"act": "relu"})
    inputs = make_inputs(OP, problem)
    of_x = np.where(inputs["z"].astype(np.float32) < 0, 0, inputs["z"]).astype(inputs["z"].dtype)
    kernel = open_kernel("wgmma")
    results = []
    with Case(device, OP, problem) as case:
        case.prepare(kernel)
        stream = device.create_stream(non_blocking=True)
        for z in (inputs["z"], of_x):
            case.upload(dict(inputs) | {"z": z})
            case.launch(kernel, stream)
            stream.synchronize()
            results.append(case.read_outputs())
    for name, values in results[0].items():
        np.testing.assert_array_equal(values.view(np.uint16), results[1][name].view(np.uint16))


def test_refusal_names_the_unaligned_address(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("wgmma")
    for tensor in ("dy", "w", "x", "z", "dz", "dw"):
        with Case(device, OP, Problem({"M": 8, "N": 9, "K": 7}, {"act": "silu"}, offsets={tensor: 1})) as case:
            assert variant.supports(**case.arguments).startswith(f"{tensor}: address")


def _arguments(device: Device, **changes: object) -> dict[str, object]:
    def make(*shape: int) -> object:
        return device.allocate(2 * math.prod(shape)).view(shape, np.float16)

    arguments: dict[str, object] = {"dy": make(4, 8), "w": make(8, 16), "x": make(4, 16), "z": make(4, 16), "dz": make(4, 16)}
    return arguments | {"dbias": make(16), "dw": make(8, 16), "dw_total": None, "act": "silu", "w_layout": "nk"} | changes


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("wgmma")
    buffer = device.allocate(4096)
    assert variant.supports(**_arguments(device)) == ""
    cases: list[tuple[dict[str, object], type[Exception], str]] = [
        ({"dy": np.zeros((4, 8), np.float16)}, TypeError, r"^dy: expected a device array .* got ndarray"),
        ({"x": buffer.view((4, 15), np.float16)}, ValueError, r"^x: expected shape \(4, 16\), got \(4, 15\)"),
        ({"w": buffer.view((16, 8), np.float16)}, ValueError, r"^w: expected shape \(8, \*\), got \(16, 8\)"),
        ({"dbias": buffer.view((15,), np.float16)}, ValueError, r"^dbias: expected shape \(16,\), got \(15,\)"),
        ({"z": buffer.view((4, 16), np.float32)}, TypeError, r"^z: expected dtype <f2, got <f4"),
        (
            {"x": buffer.view((4, 16), np.float16), "dw": buffer.view((8, 16), np.float16)},
            ValueError,
            r"^dw: .* overlaps x",
        ),
        ({"w": None}, ValueError, r"^x: expected shape \(4, 8\), got \(4, 16\)"),
        ({"w": None, "dy": buffer.view((4, 16), np.float16)}, ValueError, r"with_dw = 1: the other arguments ask for 0"),
        ({"x": None}, ValueError, r"^dw: expected None, since these attributes have no such tensor"),
        ({"z": None}, TypeError, r"^z: expected a device array .* got NoneType"),
        ({"dz": None}, ValueError, r"^z: expected None, since these attributes have no such tensor"),
        ({"dz": None, "z": None}, ValueError, r"with_dbias = 1: the other arguments ask for 0"),
        ({"dz": None, "dbias": None, "z": None, "x": None, "dw": None}, ValueError, r"with_dw = 0: the other arguments ask for 1"),
        ({"dw_total": buffer.view((8, 16), np.float16)}, ValueError, r"^dw: expected None, since these attributes have no such tensor"),
        ({"w_layout": "n"}, ValueError, r"^w_layout: expected one of nk, kn, got 'n'"),
        ({"y": None}, TypeError, r"^y: unknown argument"),
    ]
    for changes, error, message in cases:
        with pytest.raises(error, match=message):
            variant.supports(**_arguments(device, **changes))
    assert variant.supports(**_arguments(device, dz=None, dbias=None, z=None)) == ""
    assert variant.supports(**_arguments(device, dw=None, x=None)) == ""
    assert variant.supports(**_arguments(device, z=None, act="none")) == ""
    alone = _arguments(device, dy=buffer.view((4, 16), np.float16), w=None, x=None, dw=None)
    assert open_kernel("streamed").supports(**alone) == "", "N is K: no tensor tells it"


def test_constraints_name_the_rule_that_a_binding_breaks() -> None:
    wgmma = OP.find_kernel("wgmma")
    good = VARIANTS["wgmma"].tunables
    for change, rule in (
        ({"bm": 64, "pingpong": 0}, "group_rows"),
        ({"bn": 256}, "group_sums"),
        ({"clustern": 2}, "cluster_size"),
        ({"slabs": 3}, "even_slabs"),
        ({"slabs": 4}, "ring_fits"),
    ):
        with pytest.raises(SpecError, match=rule):
            wgmma.bind(good | change)
    ffma = OP.find_kernel("ffma")
    for change, rule in (
        ({"tm": 8}, "ffma_shapes"),
        ({"bm": 256, "wm": 64, "wn": 8}, "wn"),
        ({"minblocks": 4, "stages": 8}, "ffma_shared"),
    ):
        with pytest.raises(SpecError, match=rule):
            ffma.bind(VARIANTS["ffma"].tunables | change)
    boxed = OP.find_kernel("boxed_evenly")
    for change, rule in (({"bn": 32}, "evenly_shapes"), ({"bk": 32}, "evenly_shapes"), ({"stages": 8}, "evenly_fits")):
        with pytest.raises(SpecError, match=rule):
            boxed.bind(VARIANTS["boxed_evenly"].tunables | change)
    tiny = OP.find_kernel("tiny")
    for change, rule in (({"bn": 128}, "tiny_shapes"), ({"stages": 2}, "tiny_shapes"), ({"bm": 64, "stages": 8}, "tiny_shared")):
        with pytest.raises(SpecError, match=rule):
            tiny.bind(VARIANTS["tiny"].tunables | change)


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 20), ("float16", 10), ("bfloat16", 2)])
def test_tolerance_is_below_what_a_dropped_term_changes(dtype: str, factor: int) -> None:
    problem = Problem({"M": 256, "N": 256, "K": 16}, {"act": "gelu_tanh", "dtype": dtype})
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.standard_normal(shape) for name, shape in (("dy", (256, 256)), ("w", (256, 16)), ("x", (256, 16)), ("z", (256, 16)))
    }
    outputs = OP.reference(inputs, problem)
    bounds = OP.tolerance(inputs, outputs, problem)
    shortened = inputs["dy"].copy()
    shortened[:, -1] = 0.0
    fewer_terms = OP.reference(dict(inputs) | {"dy": shortened}, problem)["dz"]
    shortened = inputs["dy"].copy()
    shortened[-1] = 0.0
    fewer_rows = OP.reference(dict(inputs) | {"dy": shortened}, problem)
    for name, wrong in (("dz", fewer_terms), ("dw", fewer_rows["dw"]), ("dbias", fewer_rows["dbias"])):
        # The last columns of dW and terms of dZ are gone; of 256 rows one is.
        different = wrong != outputs[name]
        assert np.median((np.abs(wrong - outputs[name]) / bounds[name])[different]) > factor


def test_a_sample_is_part_of_the_whole() -> None:
    for layout in ("nk", "kn"):
        problem = Problem({"M": 48, "N": 40, "K": 320}, {"act": "silu", "w_layout": layout})
        inputs = make_inputs(OP, problem)
        whole = compute_expected(OP, problem, inputs, 1e15).parts[0]
        (part,) = compute_expected(OP, problem, inputs, 0.0).parts
        assert part.places is not None and len(part.places) == 64
        for name, values in part.outputs.items():
            np.testing.assert_allclose(values, part.take(name, whole.outputs[name]), rtol=1e-10, atol=1e-10)


def test_every_problem_has_a_default_variant_that_serves_it() -> None:
    assert OP.choose is not None
    for problem in OP.problems:
        choice = OP.choose(problem)
        assert choice.reason
        in_half = "mma" if problem.attributes.get("accumulate", False) else "wgmma"
        multiplies = ("ffma" if problem.attributes.get("dtype") == "float32" else in_half, "tiny")
        assert choice.variant.kernel in (multiplies if problem.attributes.get("with_w", True) else ("streamed",))


def test_small_problems_get_small_tiles() -> None:
    assert OP.choose is not None
    for dtype in ("bfloat16", "float32"):
        for shape in ((128, 10, 128), (128, 128, 256), (32, 64, 64)):
            choice = OP.choose(Problem(dict(zip("MNK", shape, strict=True)), {"act": "relu", "dtype": dtype}))
            assert (choice.variant.kernel, choice.variant.tunables["bm"]) == ("tiny", 32)


@pytest.mark.gpu
@pytest.mark.parametrize("problem", BENCH, ids=lambda p: p.name)
def test_speed(gpu_benchmark: GpuBenchmark, problem: Problem) -> None:
    """The op's own choice on each problem, cold."""
    assert OP.choose is not None
    variant = OP.choose(problem).variant
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, UNDER_TEST.open([variant])(variant))
