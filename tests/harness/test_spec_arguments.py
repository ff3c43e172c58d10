"""Formulas in Python and C++, input domains under every distribution, scalars as they are drawn, and strides of tensors."""

from __future__ import annotations

import itertools
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.discover import find_op
from harness.spec import (
    DISTRIBUTIONS,
    Attribute,
    Booleans,
    Indices,
    Positive,
    Probabilities,
    Problem,
    Role,
    Scalar,
    SpecError,
    Strides,
    Tensor,
    Uniform,
    Values,
)
from harness.spec.bounds import bound_sum, count_roundings, find_sum_factor
from harness.spec.formulas import Formula
from harness.spec.interface import Interface
from harness.verify.inputs import draw
from harness.verify.unlisted import draw_scalars

FORMULAS = ("(a + 2 * b - c) // d + 1", "a % d - b", "min(a, max(b, c)) * d", "ceil_div(a - c, d)", "-a // d", "-(a - b) % d")


def evaluate_in_python(text: str, values: dict[str, int]) -> int:
    return int(eval(text, {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}, values))


@given(st.sampled_from(FORMULAS), st.tuples(*[st.integers(-50, 50)] * 3), st.integers(1, 9))
def test_a_formula_is_what_python_says(text: str, abc: tuple[int, ...], d: int) -> None:
    values = dict(zip("abc", abc, strict=True)) | {"d": d}
    assert Formula(text).evaluate(values) == evaluate_in_python(text, values)


@pytest.mark.parametrize(
    "text", ["a / b", "a ** 2", "a.b", "f(a, b)", "a if b else c", "[a]", "1.5 * a", "a +", "min(a)", "__import__('os')"]
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="formula"):
        Formula(text)


def test_a_formula_that_has_no_value_says_why() -> None:
    with pytest.raises(SpecError, match="divides by zero"):
        Formula("a // b").evaluate({"a": 1, "b": 0})
    with pytest.raises(SpecError, match="asks for b"):
        Formula("a // b").evaluate({"a": 1})


OVERLAP = """
#include <cstdio>
#include "common/contract.hpp"
int main() {
%s
    aicf::StridedView views[2];
    while (true) {
        for (auto& view : views) {
            unsigned long long address;
            if (std::scanf("%%llu %%d", &address, &view.rank) != 2) return 0;
            view.address = address;
            view.item_bytes = 4;
            for (int i = 0; i < view.rank; ++i) {
                long long shape, stride;
                if (std::scanf("%%lld %%lld", &shape, &stride) != 2) return 1;
                view.shape[i] = shape, view.strides[i] = stride;
            }
        }
        std::printf("%%d\\n", aicf::may_share_memory(views[0], views[1]));
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that prints the formulas' values for some numbers, and then for pairs of views whether they may share memory."""
    folder = tmp_path_factory.mktemp("contract")
    lines = []
    for text, (a, b, c, d) in itertools.product(FORMULAS, NUMBERS):
        c_text = Formula(text).to_c(lambda name, v={"a": a, "b": b, "c": c, "d": d}: f"std::int64_t{{{v[name]}}}")  # type: ignore[misc]
        lines.append(f'    std::printf("%lld\\n", static_cast<long long>({c_text}));')
    (folder / "program.cpp").write_text(OVERLAP % "\n".join(lines))
    command = [str(find_toolchain().cxx), "-std=c++20", f"-I{find_project_root() / 'ops'}", "program.cpp", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


NUMBERS = ((5, 0, 3, 2), (-7, 3, 4, 3), (10, -9, 8, 7), (0, 1, -1, 5))


def make_view(generator: random.Random) -> tuple[int, list[tuple[int, int]]]:
    """Return an address and (extent, stride) per dimension, no two elements of which share a place."""
    dims, step = [], 1
    for _ in range(generator.randint(0, 3)):
        extent = generator.randint(1, 4)
        step += generator.choice((0, 0, 1, 3, 12))
        dims.append((extent, step))
        step *= extent
    return 4 * generator.randint(0, 60), generator.sample(dims, len(dims))


def list_bytes(view: tuple[int, list[tuple[int, int]]]) -> set[int]:
    address, dims = view
    places = [sum(i * s for i, (_, s) in zip(index, dims, strict=True)) for index in itertools.product(*(range(n) for n, _ in dims))]
    return {address + 4 * place + byte for place in places for byte in range(4)}


def test_formulas_and_overlap_in_cpp(program: Path) -> None:
    generator = random.Random(5)
    pairs = [(make_view(generator), make_view(generator)) for _ in range(3000)]
    # Columns of one matrix, and heads of a packed tensor, share nothing.
    pairs += [((0, [(5, 16), (4, 1)]), (16, [(5, 16), (12, 1)])), ((0, [(2, 96), (3, 24), (8, 1)]), (32, [(2, 96), (3, 24), (8, 1)]))]
    text = "\n".join(
        " ".join(map(str, [address, len(dims), *(n for pair in dims for n in pair)])) for pair in pairs for address, dims in pair
    )
    done = subprocess.run([str(program)], input=text + "\n", capture_output=True, text=True, check=True).stdout.split()
    count = len(FORMULAS) * len(NUMBERS)
    expected = [evaluate_in_python(text, dict(zip("abcd", n, strict=True))) for text, n in itertools.product(FORMULAS, NUMBERS)]
    assert [int(v) for v in done[:count]] == expected
    found = [bool(int(v)) for v in done[count:]]
    assert len(found) == len(pairs)
    truths = [not list_bytes(a).isdisjoint(list_bytes(b)) for a, b in pairs]
    assert not any(truth and not said for truth, said in zip(truths, found, strict=True)), "what shares memory is always found"
    assert found[-2:] == [False, False]
    apart = [said for truth, said in zip(truths, found, strict=True) if not truth]
    assert sum(apart) < len(apart) / 2, "few of those that share nothing are refused"


DOMAINS: tuple[tuple[Values, str], ...] = (
    (Indices("V"), "int64"),
    (Indices(3, also=(-100,)), "int32"),
    (Booleans(), "bool"),
    (Booleans(), "float32"),
    (Probabilities(), "float32"),
    (Probabilities(rows_sum_to_one=True), "float32"),
    (Positive(0.25, 4.0), "bfloat16"),
    (Uniform(-2.0, 3.0), "float32"),
    (Uniform(1, 9), "int64"),
)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("values", "dtype"), DOMAINS, ids=lambda v: str(v))
def test_every_distribution_keeps_to_the_domain(values: Values, dtype: str, distribution: str) -> None:
    drawn = draw((6, 40), dtype, distribution, op="o", problem="p", tensor="t", values=values, limit=3)
    found: Any = drawn.astype(np.float64)
    if isinstance(values, Indices):
        assert set(found.ravel()) <= {0, 1, 2, *values.also}
    elif isinstance(values, Booleans):
        assert set(found.ravel()) <= {0, 1}
    elif isinstance(values, Probabilities):
        assert (found >= 0).all() and (found <= 1).all()
        assert not values.rows_sum_to_one or np.allclose(found.sum(axis=1), 1.0, atol=1e-5)
    else:
        assert isinstance(values, Positive | Uniform)
        assert (found >= values.low).all() and (found <= values.high).all()
    one = draw((), dtype, distribution, op="o", problem="p", tensor="t", values=values, limit=3)
    assert one.shape == () and one.dtype == drawn.dtype


def test_drawn_scalars_differ_from_their_defaults_and_stay_in_range() -> None:
    scalars = (Scalar("eps", 1e-5, 1e-8, 1e-2, is_log=True), Scalar("p", 0.0, choices=(0.0, 0.5)), Scalar("n", 3, 1, 9, "int32"))
    op: Any = type("Made", (), {"scalars": scalars})
    rng = np.random.default_rng(1)
    for _ in range(200):
        drawn = draw_scalars(op, rng)
        assert all(s.find_fault(drawn[s.name]) == "" and drawn[s.name] != s.default for s in scalars if s.name in drawn)
        assert drawn["p"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("eps", 1.0), "give it low and high"),
        (("eps", 2.0, 0.0, 1.0), "its default is wrong: eps=2.0 is not from 0.0 to 1.0"),
        (("eps", 0.5, 0.0, 1.0, "float16"), "dtype 'float16' is not one of"),
        (("n", 0.5, 0.0, 1.0, "int32"), "n=0.5 is not a whole number"),
        (("eps", 0.5, 0.0, 1.0, "float32", (), True), "a logarithm needs low > 0"),
    ],
)
def test_a_scalar_that_cannot_be_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        Scalar(*arguments)


def test_strides_follow_order_and_padding() -> None:
    tensor = Tensor("q", ("B", "H", "S", "D"), Role.INPUT, strides=Strides.OUTER)
    sizes = {"B": 2, "H": 3, "S": 5, "D": 7}
    assert tensor.find_strides(Problem(sizes)) == (105, 35, 7, 1)
    inside = Problem(sizes, orders={"q": (0, 2, 1, 3)}, padding={"q": (4, 0, 2, 0)})
    # Heads of 7 beside each other; rows of 3 heads and 2 more; batches of 5 rows and 4 more.
    assert tensor.find_strides(inside) == (5 * 23 + 4, 7, 23, 1)
    assert inside.name == "B2_H3_S5_D7-pad_q=4.0.2.0-order_q=0.2.1.3"
    assert tensor.find_row_strides(inside)[:3] == (119, 7, 23)
    rows = Tensor("x", ("S", "D"), Role.INPUT, can_pad_rows=True)
    assert rows.find_strides(Problem(sizes, padding={"x": 3})) == (10, 1) and rows.find_row_strides(Problem(sizes)) == 7


@pytest.mark.parametrize("terms", [1, 2, 100, 10_000, 1 << 24, 1 << 30])
def test_the_bound_of_a_sum_is_finite_and_grows(terms: int) -> None:
    assert 0 < count_roundings(terms, 64) <= terms
    assert 0 < find_sum_factor(terms, 64) < np.inf
    assert find_sum_factor(terms, 64) <= find_sum_factor(2 * terms, 64)
    assert (bound_sum(np.ones(3), terms, 3) > 0).all()


def test_sums_in_fp32_keep_to_the_bound() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((64, 5000)).astype(np.float32)
    in_order = np.cumsum(x, axis=1, dtype=np.float32)[:, -1]
    error = np.abs(in_order - x.astype(np.float64).sum(axis=1))
    assert (error <= bound_sum(np.abs(x.astype(np.float64)).sum(axis=1), 5000, 64)).all()


@pytest.mark.parametrize("name", ["softmax", "transpose", "sdpa", "gemm_bias_act", "gemm_backward"])
def test_launchers_hold_geometry_alone(name: str) -> None:
    folder = find_op(name).folder
    texts = {f: (folder / f).read_text() for f in ("launcher.cu", "pybind.cpp")}
    assert len(texts["pybind.cpp"].splitlines()) <= 12
    assert not any(word in texts["launcher.cu"] for word in ("make_invalid", "make_unsupported", "#ifndef", 'extern "C"'))


def test_fields_of_each_growth_are_behind_all_earlier_ones() -> None:
    """So that kernels sealed before take a pointer to the longer struct."""
    op = find_op("transpose").op
    mask = Tensor("mask", ("rows", "columns"), Role.INPUT, present=lambda p: False, can_pad_rows=True, is_added=True)
    later = Tensor("later", (), Role.INPUT, present=lambda p: False, since=2)
    mode = Attribute("mode", (0, 1), 0, since=1)
    grown = replace(op, tensors=(later, mask, *op.tensors), attributes=(mode, *op.attributes))
    fields = [name for _, name, _ in Interface(grown).fields]
    assert fields == [*(name for _, name, _ in Interface(op).fields), "mask", "ldmask", "mode", "later"]


def test_names_hold_the_codes_that_an_attribute_gives_them() -> None:
    layout = Attribute("layout", ("rows", "columns"), "rows", codes=(1, 0))
    op = find_op("transpose").op
    interface = Interface(replace(op, attributes=(layout, *op.attributes)))
    assert [interface.find_code(layout, name) for name in layout.choices] == [1, 0]
    for codes in ((1,), (1, 1)):
        with pytest.raises(SpecError, match="its 2 choices need as many different codes"):
            replace(layout, codes=codes)
