"""Accuracy of every kernel of gemm_bias_act over the op's own problems, its refusals, its binding, and, on a GPU, its speed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from device import Device, Stream
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Goal, Launchable, Problem, SpecError
from harness.testing import OpUnderTest
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.plan import Effort

# What ptxas says of each kernel is tested too.
UNDER_TEST = OpUnderTest(Path(__file__).parent, has_machine_code=True)
OP = UNDER_TEST.op
# One variant a kernel; the harness's own verify runs all of them.
VARIANTS = {k.name: k.bind(k.variants[-1]) for k in OP.kernels}
# Four blocks copy a quarter of a tile's rows of A for each other, which need not begin with the swizzle's pattern.
IN_FOURS = "bm104_bn64_stages10_clusterm1_clustern4_group8"
MORE_VARIANTS = {"turned_evenly in fours": OP.find_kernel("turned_evenly").parse_variant(IN_FOURS)}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "wgmma")
ALIGNED_ONLY = (
    "vectorised",
    "warp_tiled",
    "boxed",
    "boxed_evenly",
    "skinny",
    "rows",
    "gemv",
    "decode",
    "wgmma",
    "streamk",
    "tf32",
    "streamk_tf32",
)
KN_ONLY = ("coalesced", "smem_tiled", "reg_tiled", "vectorised", "warp_tiled", "skinny")
HALF = ("mma", "gemv", "decode", "wgmma", "streamk", "turned", "turned_pingpong", "turned_evenly")
RAGGED_ROWS = Problem({"M": 8, "N": 13, "K": 8}, {"dtype": "bfloat16", "b_layout": "nk"}, {"y": 3})
TF32 = ("tf32", "streamk_tf32", "turned_tf32", "turned_evenly_tf32")
DROPPING = ("naive", "pipelined", "mma")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    variants = VARIANTS | MORE_VARIANTS
    open_variant = UNDER_TEST.open(variants.values())
    return lambda kernel: open_variant(variants[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_neither_spills_nor_has_its_products_serialised(kernel: str) -> None:
    (result,) = UNDER_TEST.build([VARIANTS[kernel]]).values()
    assert result.resources is not None, result.error
    assert result.resources.spill_bytes == 0 and result.resources.advice == ()


def _is_of(kind: str, problem: str, *, takes_nk: bool, drops: bool) -> bool:
    """Say whether a problem, by its name, is of the dtype that is meant, of a layout of B that is taken, and without what is not served."""
    if not drops and "with_dropout" in problem:
        return False
    if kind == "plain":  # of any dtype, in its own precision
        is_meant = "precision=" not in problem
    else:
        is_fp32 = "=bfloat16" not in problem and "=float16" not in problem and "precision=" not in problem
        is_meant = is_fp32 if kind == "float32" else any(word in problem for word in kind.split())
    return is_meant and (takes_nk or "b_layout=nk" not in problem)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(
        device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(max_extra_flops=1e5, num_hidden=2, max_hidden_flops=4e6))
    )
    served = [p for p in problems if p.status == "passed"]
    kind = "=bfloat16 =float16" if kernel in HALF else "precision=" if kernel in TF32 else "plain" if kernel == "tiny" else "float32"
    of_its_dtype = [p for p in problems if _is_of(kind, p.problem, takes_nk=kernel not in KN_ONLY, drops=kernel in DROPPING)]
    assert len(served) == len(of_its_dtype) or (served and kernel in ALIGNED_ONLY)


@pytest.mark.parametrize(
    ("kernel", "attributes"), [("vectorised", {}), ("warp_tiled", {}), ("wgmma", {"dtype": "bfloat16"}), ("decode", {"dtype": "float16"})]
)
def test_refusal_names_the_unaligned_argument(device: Device, open_kernel: Open, kernel: str, attributes: dict[str, str]) -> None:
    variant = open_kernel(kernel)
    for tensor, problem in (
        ("a", Problem({"M": 8, "N": 8, "K": 7}, attributes)),
        ("b", Problem({"M": 8, "N": 8, "K": 8}, attributes, {"b": 1})),
    ):
        with Case(device, OP, problem) as case:
            reason = variant.supports(**case.arguments)
        assert reason.startswith(f"{tensor}: ") and "row stride" in reason and "multiple" in reason


@pytest.mark.parametrize("kernel", ["wgmma", "streamk"])
def test_rows_of_y_that_end_within_16_bytes_are_refused(device: Device, open_kernel: Open, kernel: str) -> None:
    """Tensor copies store whole units of 16 bytes: what follows such a row would be overwritten."""
    with Case(device, OP, RAGGED_ROWS) as case:
        assert open_kernel(kernel).supports(**case.arguments).startswith("N = 13: must be a multiple of 8")


@pytest.mark.parametrize("kernel", ["turned", "turned_pingpong", "turned_evenly"])
def test_rows_of_y_that_end_within_16_bytes_are_served(device: Device, open_kernel: Open, kernel: str) -> None:
    with Case(device, OP, RAGGED_ROWS) as case:
        assert open_kernel(kernel).supports(**case.arguments) == ""


def test_every_tile_that_turned_may_have_has_its_product() -> None:
    """One that is missing is a variant of the space that does not compile."""
    text = (Path(__file__).parents[1] / "common" / "wgmma.cuh").read_text()
    columns = {2 * int(sums) for sums in re.findall(r"^AICF_GROUP_PRODUCTS\((\d+),", text, re.MULTILINE)}
    rows = next(t for t in OP.find_kernel("turned").tunables if t.name == "bm").values
    assert {bm for bm in rows if bm % 8 == 0} <= columns


@pytest.mark.parametrize(("kernel", "dtype"), [("turned", "bfloat16"), ("turned_pingpong", "float16"), ("turned_tf32", "float32")])
def test_operands_off_their_boundaries_are_refused_by_address_alone(device: Device, open_kernel: Open, kernel: str, dtype: str) -> None:
    attributes = {"dtype": dtype, "b_layout": "nk", "precision": "tf32" if dtype == "float32" else "ieee"}
    for tensor in ("a", "b"):
        with Case(device, OP, Problem({"M": 5, "N": 7, "K": 9}, attributes, offsets={tensor: 1})) as case:
            assert open_kernel(kernel).supports(**case.arguments).startswith(f"{tensor}: address")


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("kernel", ["turned_evenly", "turned_evenly in fours"])
def test_tiles_of_even_rows_have_the_bits_of_whole_ones(device: Device, open_kernel: Open, kernel: str, layout: str) -> None:
    """An element's products are added up in one order, whatever the tile. 112 rows are a whole tile, and half of one is the least."""
    for rows in (1, 40, 56, 57, 64, 112, 113, 225, 300, 337):
        problem = Problem({"M": rows, "N": 200, "K": 96}, {"dtype": "bfloat16", "b_layout": layout, "with_bias": True, "act": "relu"})
        inputs = make_inputs(OP, problem, "normal")
        even, whole = (UNDER_TEST.launch(device, open_kernel(k), problem, inputs)["y"] for k in (kernel, "turned"))
        np.testing.assert_array_equal(even.view(np.uint8), whole.view(np.uint8), err_msg=f"{rows} rows")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_tiles_of_any_rows_that_boxed_evenly_may_take_are_right(device: Device, open_kernel: Open, layout: str) -> None:
    """Tall tiles are taken where those of half the rows would be another wave; few tiles are low, their k in as many blocks as it has."""
    many = 64 * 4 * 132  # columns of as many tiles as run at once
    low = ((1, 100, 4), (32, 100, 16), (33, 100, 36), (65, 100, 132), (127, 100, 260))
    for rows, columns, depth in (*low, *((rows, many, 4) for rows in (40, 48, 56, 64))):
        attributes = {"b_layout": layout, "with_bias": True, "with_residual": True, "save_z": True, "act": "gelu_tanh"}
        problem = Problem({"M": rows, "N": columns, "K": depth}, attributes)
        inputs = make_inputs(OP, problem, "normal")
        exact = {name: values.astype(np.float64) for name, values in inputs.items()}
        expected = OP.reference(exact, problem)
        bounds = OP.tolerance(exact, expected, problem)
        for name, values in UNDER_TEST.launch(device, open_kernel("boxed_evenly"), problem, inputs).items():
            assert np.all(np.abs(values - expected[name]) <= bounds[name]), f"{name} of {rows} x {columns}, k {depth}"


@pytest.mark.slow
def test_workspace_holds_copies_of_operands_and_parts_of_tiles(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("turned")

    def count(k: int, **padding: int) -> int:
        with Case(device, OP, Problem({"M": 40, "N": 128, "K": k}, {"dtype": "bfloat16", "b_layout": "nk"}, padding)) as case:
            return variant.workspace_bytes(**case.arguments)

    assert count(64) == 0
    assert count(64, a=1) == 40 * 64 * 2
    assert count(64, a=1, b=1) == 40 * 64 * 2 + 128 * 64 * 2
    assert count(64 * 64) > 0, "one tile and 64 steps of k: split"


@pytest.mark.parametrize(
    ("kernel", "attributes", "message"),
    [
        ("naive", {"dtype": "bfloat16"}, "dtype = bfloat16: is not served"),
        ("coalesced", {"b_layout": "nk"}, "b_layout = nk: is not served"),
        ("warp_tiled", {"b_layout": "nk"}, "b_layout = nk: is not served"),
        ("skinny", {"b_layout": "nk"}, "b_layout = nk: is not served"),
        ("mma", {}, "dtype = float32: is not served"),
        ("wgmma", {}, "dtype = float32: is not served"),
        ("pipelined", {"precision": "tf32"}, "precision = tf32: is not served"),
        ("skinny", {"precision": "tf32"}, "precision = tf32: is not served"),
        ("rows", {"b_layout": "kn"}, "b_layout = kn: is not served"),
        ("rows", {"dtype": "float16", "b_layout": "nk"}, "dtype = float16: is not served"),
        ("streamk", {}, "dtype = float32: is not served"),
        ("turned", {}, "dtype = float32: is not served"),
        *((k, {"b_layout": "nk"}, "precision = ieee: is not served") for k in ("turned_tf32", "turned_evenly_tf32")),
        ("streamk_tf32", {"precision": "tf32"}, "b_layout = kn: is not served"),
        ("tf32", {"b_layout": "nk"}, "precision = ieee: is not served"),
        ("tf32", {"precision": "tf32"}, "b_layout = kn: is not served"),
        ("gemv", {"dtype": "bfloat16"}, "b_layout = kn: is not served"),
        ("gemv", {"dtype": "bfloat16", "b_layout": "nk"}, "M = 8: must not exceed 4"),
        *(
            (k, {"with_dropout": True}, "with_dropout = True: is not served")
            for k in ("coalesced", "boxed", "boxed_evenly", "skinny", "tiny")
        ),
        *((k, {"dtype": "float16", "b_layout": "nk", "with_dropout": True}, "with_dropout = True: is not served") for k in HALF[1:]),
        *((k, {"precision": "tf32", "b_layout": "nk", "with_dropout": True}, "with_dropout = True: is not served") for k in TF32),
    ],
)
def test_refusal_names_the_dtype_or_layout(
    device: Device, open_kernel: Open, kernel: str, attributes: dict[str, str], message: str
) -> None:
    with Case(device, OP, Problem({"M": 8, "N": 8, "K": 8}, attributes)) as case:
        assert open_kernel(kernel).supports(**case.arguments).startswith(message)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [("naive", {}), ("mma", {"dtype": "float16"}), ("gemv", {"dtype": "bfloat16", "b_layout": "nk"}), ("decode", {"dtype": "float16"})],
)
def test_a_residual_of_equal_rows_has_the_bits_of_a_bias(
    device: Device, open_kernel: Open, kernel: str, attributes: dict[str, str]
) -> None:
    biased = Problem({"M": 3, "N": 24, "K": 40}, attributes | {"with_bias": True, "act": "relu"})
    inputs = make_inputs(OP, biased, "normal")
    bias = inputs.pop("bias")
    added = Problem(biased.sizes, attributes | {"with_residual": True, "act": "relu"}, {"residual": 5})
    y = UNDER_TEST.launch(device, open_kernel(kernel), added, inputs | {"residual": np.tile(bias, (3, 1))})["y"]
    expected = UNDER_TEST.launch(device, open_kernel(kernel), biased, inputs | {"bias": bias})["y"]
    np.testing.assert_array_equal(y.view(np.uint8), expected.view(np.uint8))


def _arguments(device: Device, **changes: object) -> dict[str, object]:
    def make(*shape: int) -> object:
        return device.allocate(4 * math.prod(shape)).view(shape, np.float32)

    return {
        "a": make(4, 8),
        "b": make(8, 12),
        "bias": None,
        "y": make(4, 12),
        "z": None,
        "residual": None,
        "p": None,
        "counter": None,
        "act": "none",
        "b_layout": "kn",
        "precision": "ieee",
    } | changes


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("naive")
    buffer = device.allocate(4096)
    cases: list[tuple[dict[str, object], type[Exception], str]] = [
        ({"a": np.zeros((4, 8), np.float32)}, TypeError, r"^a: expected a device array .* got ndarray"),
        ({"a": buffer.view((4, 8), np.float64)}, TypeError, r"^a: expected a dtype of <f4, <V2, <f2, got <f8"),
        ({"a": buffer.view((32,), np.float32)}, ValueError, r"^a: expected 2 dimensions \(\*, \*\), got shape \(32,\)"),
        ({"b": buffer.view((7, 12), np.float32)}, ValueError, r"^b: expected shape \(8, \*\), got \(7, 12\)"),
        (
            {"b": buffer.view((8, 12), np.float32, strides_bytes=(4, 32))},
            ValueError,
            r"^b: expected contiguous rows .* got strides \(1, 8\)",
        ),
        ({"bias": buffer.view((11,), np.float32)}, ValueError, r"^bias: expected shape \(12,\), got \(11,\)"),
        ({"residual": buffer.view((4, 11), np.float32)}, ValueError, r"^residual: expected shape \(4, 12\), got \(4, 11\)"),
        ({"y": buffer.view((4, 11), np.float32)}, ValueError, r"^y: expected shape \(4, 12\), got \(4, 11\)"),
        ({"a": buffer.view((4, 8), np.float32), "y": buffer.view((4, 12), np.float32)}, ValueError, r"^y: .* overlaps a"),
        ({"p": buffer.view((), np.float32)}, TypeError, r"^counter: expected a device array .* got NoneType"),
        ({"counter": buffer.view((2,), np.int64)}, ValueError, r"^counter: expected None, since these attributes have no such tensor"),
        ({"act": "tanh"}, ValueError, r"^act: expected one of none, relu, gelu_tanh, gelu_erf, silu, got 'tanh'"),
        ({"act": 1}, TypeError, r"^act: expected a str, got int"),
        ({"y": buffer.view((4, 12), np.float16)}, TypeError, r"^y: expected dtype <f4, got <f2"),
        ({"b_layout": "nk"}, ValueError, r"^b: expected shape \(\*, 8\), got \(8, 12\)"),
        ({"precision": "tf16"}, ValueError, r"^precision: expected one of ieee, tf32, got 'tf16'"),
        ({"b_layout": "k"}, ValueError, r"^b_layout: expected one of kn, nk, got 'k'"),
        (
            {"alpha": 2.0},
            TypeError,
            r"^alpha: unknown argument; there are: a, b, bias, y, z, residual, p, counter, act, b_layout, precision",
        ),
    ]
    for changes, error, message in cases:
        with pytest.raises(error, match=message):
            variant.supports(**_arguments(device, **changes))
    arguments = _arguments(device)
    del arguments["bias"]
    with pytest.raises(TypeError, match="bias: argument is missing"):
        variant.supports(**arguments)


def test_binding_refuses_a_library_without_the_variant(open_kernel: Open) -> None:
    module = type(open_kernel("naive"))
    with pytest.raises(ImportError, match=r"cannot load /nowhere\.so"):
        module("/nowhere.so", "naive")


def test_constraints_name_the_rule_that_a_binding_breaks() -> None:
    wgmma = OP.find_kernel("wgmma")
    for binding, rule in (
        ("bm64_bn64_stages4_clusterm1_clustern1_pingpong0_group8", "group_rows"),
        ("bm128_bn256_stages3_clusterm1_clustern1_pingpong1_group8", "group_sums"),
        ("bm128_bn128_stages4_clusterm2_clustern2_pingpong0_group8", "cluster_size"),
        ("bm128_bn256_stages5_clusterm1_clustern1_pingpong0_group8", "ring_fits"),
    ):
        with pytest.raises(SpecError, match=rule):
            wgmma.parse_variant(binding)
    turned = OP.find_kernel("turned")
    for binding, rule in (
        ("bm192_bn256_stages4_clusterm1_clustern1_group8", "turned_fits"),
        ("bm208_bn256_stages3_clusterm1_clustern1_group8", "turned_shapes"),
        ("bm256_bn256_stages2_clusterm1_clustern1_group8", "turned_shapes"),
        ("bm208_bn192_stages3_clusterm1_clustern1_group8", "turned_shapes"),
        ("bm200_bn192_stages5_clusterm1_clustern1_group8", "turned_fits"),
        ("bm8_bn128_stages12_clusterm1_clustern2_group8", "turned_shapes"),
    ):
        with pytest.raises(SpecError, match=rule):
            turned.parse_variant(binding)
    for binding, rule in (
        ("bm100_bn128_stages4_clusterm1_clustern1_group8", "bm"),
        ("bm208_bn128_stages4_clusterm1_clustern1_group8", "turned_pingpong_shapes"),
        ("bm88_bn128_stages4_clusterm1_clustern2_group8", "turned_pingpong_shapes"),
        ("bm192_bn128_stages6_clusterm1_clustern1_group8", "turned_fits"),
    ):
        with pytest.raises(SpecError, match=rule):
            OP.find_kernel("turned_pingpong").parse_variant(binding)
    pipelined = OP.find_kernel("pipelined")
    with pytest.raises(SpecError, match="lanes_fill_warp"):
        pipelined.parse_variant("bm128_bn128_bk8_wm64_wn32_tm8_tn16_stages4_group8_minblocks2_splits1")
    with pytest.raises(SpecError, match="shared_memory"):
        pipelined.parse_variant("bm256_bn128_bk32_wm64_wn64_tm8_tn16_stages6_group8_minblocks1_splits1")
    with pytest.raises(SpecError, match="registers"):
        pipelined.parse_variant("bm128_bn128_bk8_wm64_wn64_tm8_tn16_stages4_group8_minblocks3_splits1")


@pytest.mark.parametrize(
    ("attributes", "factor"), [({}, 100), ({"dtype": "float16"}, 10), ({"dtype": "bfloat16"}, 2), ({"precision": "tf32"}, 1)]
)
def test_tolerance_is_below_what_a_dropped_term_changes(attributes: dict[str, str], factor: int) -> None:
    rng = np.random.default_rng(0)
    problem = Problem({"M": 8, "N": 8, "K": 256}, attributes)
    inputs = {"a": rng.standard_normal((8, 256)), "b": rng.standard_normal((256, 8))}
    outputs = OP.reference(inputs, problem)
    bound = OP.tolerance(inputs, outputs, problem)["y"]
    shortened = OP.reference({"a": inputs["a"][:, :255], "b": inputs["b"][:255]}, problem)["y"]
    assert np.median(np.abs(shortened - outputs["y"]) / bound) > factor


@pytest.mark.parametrize("problem", OP.problems, ids=lambda p: p.name)
def test_every_problem_has_one_legal_choice(problem: Problem) -> None:
    assert OP.choose is not None
    first, second = OP.choose(problem), OP.choose(Problem(problem.sizes, problem.attributes, problem.padding))
    assert first == second and first.reason
    OP.find_kernel(first.variant.kernel).bind(first.variant.tunables)


def test_choices_are_close_to_the_fastest_that_was_measured() -> None:
    """The committed times of an H200 are those that the rules were made from: a rule that loses more than it may is seen here."""
    root = UNDER_TEST.loaded.folder.parents[1]
    done = subprocess.run(
        [sys.executable, root / "scripts" / "print_regret.py", OP.name, root / "profiles" / OP.name / "choices-h200.csv"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    lines = done.stdout.splitlines()
    assert float(lines[-1].split()[1]) < 1.0, lines[-1]
    assert float(lines[0].split()[0]) < 5.0, lines[0]


@pytest.mark.slow  # every variant that is chosen is compiled
def test_the_choice_is_served(device: Device) -> None:
    """Every choice among the small problems is built and asked whether it serves its problem, for which none needs machine code."""
    assert OP.choose is not None
    chosen = {p.name: OP.choose(p).variant for p in OP.select_problems("verify")}
    without_code = OpUnderTest(UNDER_TEST.loaded.folder)
    opened = {v: (UNDER_TEST if v in VARIANTS.values() else without_code).open([v])(v) for v in set(chosen.values())}
    for problem in OP.select_problems("verify"):
        with Case(device, OP, problem) as case:
            assert opened[chosen[problem.name]].supports(**case.arguments) == "", problem.name


@pytest.mark.gpu
@pytest.mark.parametrize("goal", OP.goals, ids=lambda g: g.name)
def test_speed(gpu_benchmark: GpuBenchmark, goal: Goal) -> None:
    """The op's choices on all problems of a goal, one launch each, behind each other."""
    assert OP.choose is not None
    chosen = [OP.choose(p).variant for p in goal.problems]
    open_variant = UNDER_TEST.open({v.name: v for v in chosen}.values())
    opened = [open_variant(v) for v in chosen]
    with ExitStack() as stack:
        cases = [stack.enter_context(Case(gpu_benchmark.timer.device, OP, p)) for p in goal.problems]
        for case in cases:
            case.upload(make_inputs(OP, case.problem, "uniform"))

        def launch(stream: Stream) -> None:
            for case, launchable in zip(cases, opened, strict=True):
                case.launch(launchable, stream)

        gpu_benchmark(launch)
