"""How a loose kernel is described: formulas and functions as text, bounds that are derived, and mistakes told with their remedy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SpecError
from harness.loose.folder import load_loose
from harness.loose.formulas import ceil_div, read_formula, read_formulas, read_restriction
from harness.loose.functions import Written
from harness.loose.kernel import describe_kernel, name_tunables
from harness.spec.formulas import Formula
from harness.spec.references import NotASumError
from harness.workbench import In, InOut, Out, Size, Value
from tests.workbench.loose_kernels import CONVOLUTION, MATMUL, VECTOR_ADD

HALF = 2


def scale(x: Any) -> Any:
    return x * HALF


def describe(**changes: Any) -> Any:
    described = VECTOR_ADD | changes
    return describe_kernel(described.pop("source"), described.pop("name"), **described)


@given(st.integers(1, 10**6), st.integers(1, 512))
def test_a_function_for_a_grid_becomes_the_formula_that_it_computes(n: int, t: int) -> None:
    functions = (
        lambda n, t: -(-n // t),
        lambda n, t: math.ceil(n / t),
        lambda n, t: ceil_div(n, t),
        lambda n, t: (n + t - 1) // t,
        lambda n, t: n % t + 2 * n - 1,
    )
    for function in functions:
        assert Formula(read_formula("grid", function, ["n", "t"])).evaluate({"n": n, "t": t}) == function(n, t)
    assert read_formulas("block", lambda t: (t, 4), ["n", "t"]) == ("t", "4")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ceil_div(n, threads)", "asks for threads, which is neither a size nor a tunable .there are: n, t."),
        ("n / t", "is not a formula: use"),
        (lambda n, m: n, "its function has parameter m, neither a size nor a tunable"),
        (lambda n: n if n > 3 else 1, "cannot be made a formula: it decides by a size"),
        (lambda n, t: n / t, "which is not a whole number; divide with //, or round with math.ceil"),
        (1.5, "comes to 1.5, which is not a whole number"),
        ((1, 2, 3, 4), "has 4 parts: give x, .x, y. or .x, y, z."),
    ],
)
def test_a_grid_that_is_no_formula_is_refused_with_the_remedy(given: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"grid.*{message}"):
        read_formulas("grid", given, ["n", "t"])


def test_a_restriction_is_a_text_or_a_function_of_tunables_or_of_one_dict() -> None:
    names, limit = {"block_size_x": "blocksizex", "tile": "tile"}, 1024
    texts = [
        read_restriction("block_size_x * tile <= 1024 and tile != 3", names),
        read_restriction(lambda block_size_x, tile: block_size_x * tile <= limit and tile != 3, names),
        read_restriction(lambda p: p["block_size_x"] * p["tile"] <= limit and p["tile"] != 3, names),
    ]
    assert {expression for _, expression in texts} == {"t['blocksizex'] * t['tile'] <= 1024 and t['tile'] != 3"}
    with pytest.raises(SpecError, match=r"asks for bm, which is not a tunable .there are: block_size_x, tile."):
        read_restriction("bm > 1", names)
    with pytest.raises(SpecError, match="has Call: use numbers, tunables"):
        read_restriction("__import__('os')", names)


def test_a_function_comes_with_what_it_uses() -> None:
    offset, written = 3, Written()
    written.add_function("reference", lambda x: np.sqrt(scale(x)) + offset, "kernel_reference")
    text = "\n".join([*written.imports.values(), *written.constants.values(), *written.functions.values()])
    space: dict[str, Any] = {}
    exec(text, space)
    assert space["kernel_reference"](8.0) == 7.0
    assert set(written.constants) == {"HALF", "offset"} and list(written.functions) == ["scale", "kernel_reference"]
    table = {"a": 1}
    with pytest.raises(SpecError, match=r"reference: <lambda>\(\) uses table, which is dict: .* pass it as an argument"):
        Written().add_function("reference", lambda x: x * table["a"], "kernel_reference")


def test_tunables_get_names_of_letters_that_differ() -> None:
    assert name_tunables({"block_size_x": 1, "BM": 1, "tile1": 1, "tile2": 1}) == {
        "block_size_x": "blocksizex",
        "BM": "bm",
        "tile1": "tile",
        "tile2": "tilex",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "missing.cu"}, "source: there is no file .*missing.cu; give the kernel's path, or its text"),
        ({"name": "vector_sub"}, r"name: vector_add.cu has no __global__ function 'vector_sub' \(it has: vector_add\)"),
        ({"sizes": {"n": 0}}, "sizes: n is 0; give a whole number of at least 1"),
        ({"sizes": {}}, "sizes: give a dict"),
        ({"arguments": {"c": In("n")}}, "arguments: no array is written; make one Out"),
        ({"arguments": {"c": Out("n"), "m": Size()}}, r"arguments: m is the size 'm', which does not exist \(sizes: n\)"),
        ({"arguments": {"c": Out("n"), "a": np.zeros(3)}}, "arguments: a is array.*: give In, Out or InOut"),
        ({"arguments": {"c": Out("n", dtype="float31")}}, "arguments: c has dtype 'float31'"),
        ({"tunables": {"block_size_x": [1.5]}}, "tunables: block_size_x has value 1.5; a tunable is a whole number"),
        ({"tunables": {"block_size_x": []}}, r"tunables: block_size_x is \[\]; give a list of whole numbers"),
        ({"tunables": {"n": [1]}}, "tunables: n is a size, too"),
        ({"restrictions": "block_size_x > 4096"}, "restrictions: none of the 4 bindings of the tunables is allowed; loosen one"),
        ({"grid": "ceil_div(m, 32)"}, "grid .* asks for m"),
        ({"multiple_of": {"m": 4}}, r"multiple_of: 'm' is not a size \(there are: n\)"),
        ({"reference": 3}, "reference is 3: give a function"),
    ],
)
def test_a_mistake_names_the_argument_and_the_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        describe(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"reference": lambda a, d: a},
            r"reference has parameter d, which is not an input, scalar or size .* \(there are: a, b, n\)",
        ),
        ({"template": ("bm",)}, r"template: 'bm' is neither a tunable \(there are: block_size_x, is_guarded\) nor a type"),
        ({"flags": ("-arch=sm_80",)}, "flag '-arch=sm_80' cannot be given"),
    ],
)
def test_what_an_op_cannot_be_is_said_before_anything_is_built(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_loose(describe(**changes))


@pytest.mark.parametrize("described", [VECTOR_ADD, CONVOLUTION, MATMUL], ids=lambda d: d["name"])
def test_the_derived_bound_holds_for_fp32_and_refuses_what_is_a_little_wrong(described: dict[str, Any]) -> None:
    changed = dict(described)
    op = load_loose(describe_kernel(changed.pop("source"), changed.pop("name"), **changed)).op
    problem = max(op.select_problems("verify"), key=lambda p: op.cost(p).flops)
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(t.resolve_shape(problem)).astype(np.float32) for t in op.inputs}
    doubles = {name: values.astype(np.float64) for name, values in inputs.items()}
    outputs = op.reference(doubles, problem)
    bounds = op.tolerance(doubles, outputs, problem)
    for name, values in outputs.items():
        in_fp32 = op.reference(inputs, problem)[name].astype(np.float32)
        assert (np.abs(in_fp32 - values) <= bounds[name]).all()
        assert (bounds[name] < 1e-3 * np.abs(values).max()).all()


def test_no_bound_is_derived_of_what_is_no_sum_of_products() -> None:
    loaded = load_loose(describe(reference=lambda a, b: np.exp(a) + b)).op
    problem = loaded.select_problems("verify")[0]
    inputs = {name: np.ones(problem.sizes["n"]) for name in ("a", "b")}
    with pytest.raises(NotASumError, match="not a sum of products: it uses exp; give tolerance="):
        loaded.tolerance(inputs, loaded.reference(inputs, problem), problem)


def test_terms_that_cancel_count_with_their_magnitudes() -> None:
    loaded = load_loose(describe(reference=lambda a, b: a - b)).op
    problem = loaded.select_problems("verify")[0]
    inputs = {name: np.full(problem.sizes["n"], 8.0) for name in ("a", "b")}
    bound = loaded.tolerance(inputs, loaded.reference(inputs, problem), problem)["c"]
    assert (bound > 16.0 * 2.0**-24).all()


def test_values_inouts_and_files_beside_the_kernel_are_taken_along(tmp_path: Path) -> None:
    (tmp_path / "more.cuh").write_text("#define TWO 2\n")
    (tmp_path / "axpy.cu").write_text('#include "more.cuh"\n__global__ void axpy(float* y, const float* x, float alpha, long long n) {}\n')
    kernel = describe_kernel(
        tmp_path / "axpy.cu",
        "axpy",
        sizes=[{"n": 1000}, {"n": 5000}],
        arguments={"y": InOut("n"), "x": In("n"), "alpha": Value(2.0, 0.5, 4.0), "n": Size(dtype="int64")},
        tunables={},
        grid=1,
        block=32,
        reference=lambda x, y, alpha: y + alpha * x,
        proving_sizes={"n": 7},
        flags=("--use_fast_math",),
    )
    loaded = load_loose(kernel)
    assert (loaded.folder / "more.cuh").read_text() == "#define TWO 2\n"
    assert loaded.op.flags == ("--use_fast_math",) and [s.name for s in loaded.op.scalars] == ["alpha"]
    assert [p.sizes["n"] for p in loaded.op.select_problems("verify")] == [7]
    assert [p.sizes["n"] for p in loaded.op.select_problems("bench")] == [1000, 5000]
    assert load_loose(kernel).folder == loaded.folder


def test_sizes_beyond_what_a_grid_can_have_are_not_served() -> None:
    described = dict(CONVOLUTION)
    op = load_loose(describe_kernel(described.pop("source"), described.pop("name"), **described)).op
    variant = op.variants[0]
    most = variant.tunables["blocksizey"] * variant.tunables["tilesizey"] * 65535
    listed = op.problems[0]
    for height, is_served in ((most, True), (most + 1, False)):
        assert op.meets_domain(variant, replace(listed, sizes=dict(listed.sizes) | {"height": height})) is is_served
