"""Chains of elementwise functions: the language, its NumPy evaluation, its bounds, and the random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contract.expressions import FUNCTIONS, ExpressionError, evaluate, find_bounds, format_node, parse_chain, read_chains
from contract.expressions.cuda import OWN, write_chains
from contract.expressions.evaluate import Draws
from contract.expressions.functions import COMPARISONS, LOGIC
from contract.expressions.philox import draw_sequence, draw_words, find_kept, make_blocks
from contract.expressions.tree import Call, Chain, Extent, Name, Node, Number

# Derivatives in the table, and what they are of.
SLOPES = {
    "relu_grad(x)": "relu(x)",
    "gelu_grad(x)": "gelu(x)",
    "gelu_tanh_grad(x)": "gelu_tanh(x)",
    "silu_grad(x)": "silu(x)",
    "tanh_grad_from_y(tanh(x))": "tanh(x)",
    "sigmoid_grad_from_y(sigmoid(x))": "sigmoid(x)",
    "2 * x": "square(x)",
    "sigmoid(x)": "softplus(x)",
}


def _parse(expression: str, inputs: str = "x: T", output: str = "y: f32") -> Chain:
    return parse_chain("chain", f"{inputs} -> {output}; y = {expression}")


def _evaluate(expression: str, **inputs: Any) -> NDArray[Any]:
    names = ", ".join(f"{name}: T" for name in inputs)
    chain = parse_chain("chain", f"{names} -> result: f32; result = {expression}")
    return evaluate(chain, {name: np.atleast_2d(np.asarray(value, np.float64)) for name, value in inputs.items()})["result"]


@pytest.mark.parametrize("slope", SLOPES)
@given(x=st.floats(-6.0, 6.0).filter(lambda x: abs(x) > 1e-3))
@settings(max_examples=40, deadline=None)
def test_a_derivative_is_the_slope_of_its_function(slope: str, x: float) -> None:
    step = 1e-5
    high, low = (_evaluate(SLOPES[slope], x=x + s * step)[0, 0] for s in (1.0, -1.0))
    assert _evaluate(slope, x=x)[0, 0] == pytest.approx((high - low) / (2.0 * step), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: T", "write `inputs -> outputs; assignments`"),
        ("x: T -> y: T; z = x", "output y is not assigned"),
        ("x: T -> y: T; y = z", "'z' is neither an input nor assigned before"),
        ("x: T -> y: T; y = foo(x)", "there is no function 'foo'"),
        ("x: T -> y: T; y = pow(x)", "pow takes 2 arguments, not 1"),
        ("x: T -> y: T; y = x > 0", "output y is T, and is assigned a bool"),
        ("x: T, m: bool -> y: T; y = x + m", "'m' is a bool, and add takes a float there"),
        ("x: T, u: T -> y: T; y = x", "input u is not used"),
        ("x: f32 -> y: T; y = x", "its first input must be of type T, not"),
        ("n: i64 -> y: f32; y = n * 2", "mul takes no counter"),
        ("n: i64, x: f32 -> m: i64; m = n + x", "'x' is a float, and counters take only whole numbers"),
        ("n: i64 -> m: i64; m = n + 0.5", "counters take only whole numbers"),
        ("n: i64, x: f32 -> m: i64; m = where(x > 0.0, n, x)", "where takes no counter"),
        ("n: i64, x: f32 -> m: i64; m = where(x, n, n)", "where takes no counter"),
        ("x: f32 -> y: f32; y = float(x)", "float takes a counter"),
        ("a: i64, b: i64, c: i64 -> d: i64, e: i64, f: i64; d = a; e = b; f = c", "it has 6 inputs and 6 outputs"),
        ("x: T -> y: T[rows]; y = x", "must be of full extent"),
        ("x: i32 -> y: T; y = x", "operand 'x: i32' is not understood"),
        ("x: T -> y: T; y = x; y = x", "each is assigned once"),
        ("x: T -> y: T; y = x[0]", "is not understood"),
        ("x: T -> y: T; y = 1 < x < 2", "is not understood"),
        ("x: T -> y: T; y = dropout(x, x)", "cannot be a probability"),
        ("x: T -> y: T; y = x + 1e40", "beyond fp32"),
        ("x: T -> y: T; y = (x", "was never closed"),
        ("x: T -> x: T; x = x", "named more than once"),
        ("x: T -> y: T; import os", "is not an assignment"),
        (", ".join(f"x{i}: T" for i in range(9)) + " -> y: T; y = x0", "9 inputs"),
        ("x: T -> y: T; y = dropout(dropout(dropout(dropout(dropout(x, 0.1), 0.1), 0.1), 0.1), 0.1)", "draws more than 4 times"),
    ],
)
def test_what_is_no_chain_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match="chain") as error:
        parse_chain("wrong", text)
    assert reason in str(error.value)


def test_spellings_of_one_chain_are_one_chain() -> None:
    first = parse_chain("a", "x: T,b:T[ columns ]->y:T;y=gelu( x+b )")
    second = parse_chain("b", "x: T, b: T[columns] -> y: T; y = gelu(x + b)")
    assert first.text == second.text == "x: T, b: T[columns] -> y: T; y = gelu(x + b)"
    assert first.key == second.key != parse_chain("c", "x: T, b: T[rows] -> y: T; y = gelu(x + b)").key
    assert parse_chain("again", first.text).text == first.text


def test_extents_broadcast_as_their_shapes_do() -> None:
    chain = parse_chain("chain", "x: T, r: T[rows], c: T[columns], o: f32[] -> y: T; y = x + r * c + o")
    assert [o.extent for o in chain.inputs] == [Extent.FULL, Extent.ROWS, Extent.COLUMNS, Extent.ONE]
    assert [o.shape for o in chain.inputs] == [("rows", "columns"), ("rows", 1), (1, "columns"), (1, 1)]
    x, r, c, o = np.ones((2, 3)), np.array([[1.0], [2.0]]), np.array([[1.0, 2.0, 3.0]]), np.array([[10.0]])
    np.testing.assert_array_equal(evaluate(chain, {"x": x, "r": r, "c": c, "o": o})["y"], 11.0 + r * c)


def test_a_branch_that_is_not_taken_costs_nothing() -> None:
    assert _evaluate("x if x > 0 else log(x)", x=2.0)[0, 0] == 2.0
    assert np.isnan(_evaluate("max(x, 0)", x=np.nan)[0, 0]) and np.isnan(_evaluate("clip(x, 0, 1)", x=np.nan)[0, 0])


# A known answer of each: all zeros, all ones, digits of pi (the authors' test vectors).
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_has_its_authors_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in make_blocks((c0, c1, c2, c3), key)) == words


@given(seed=st.integers(-(2**63), 2**63 - 1), offset=st.integers(-(2**63), 2**63 - 1), places=st.lists(st.integers(0, 2**40), min_size=1))
@settings(max_examples=30, deadline=None)
def test_an_element_has_its_word_whatever_is_drawn_beside_it(seed: int, offset: int, places: list[int]) -> None:
    together = draw_words(np.array(places), seed, offset)
    assert together.tolist() == [int(draw_words(np.array([place]), seed, offset)[0]) for place in places]


@pytest.mark.parametrize("count", [0, 1, 6, 4 * 8192, 4 * 8192 + 3, 100_000])
def test_a_sequence_has_the_words_of_its_elements(count: int) -> None:
    places = np.arange(count)
    np.testing.assert_array_equal(draw_sequence(count, 5, 2**33 + 1, 2), draw_words(places, 5, 2**33 + 1, 2))
    np.testing.assert_array_equal(draw_words(places[::-1], 5, 7)[::-1], draw_words(places, 5, 7))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_share_that_is_asked_for_is_dropped(share: float) -> None:
    count = 1 << 16
    dropped = 1.0 - find_kept(draw_words(np.arange(count), 7, 3), share).mean()
    assert dropped == pytest.approx(share, abs=6.0 * np.sqrt(share * (1.0 - share) / count))


def test_draws_of_one_chain_are_independent() -> None:
    words = [draw_words(np.arange(4096), 1, 2, draw) for draw in range(2)]
    both = find_kept(words[0], 0.5) & find_kept(words[1], 0.5)
    assert both.mean() == pytest.approx(0.25, abs=0.04)


# ------------------------------------------------------------------------------------------------------------- bounds


def _run_in_fp32(node: Node, known: dict[str, Any]) -> Any:
    """Evaluate a tree as a device does: every function's result rounded to fp32."""
    if isinstance(node, Number):
        return np.float32(node.value)
    if isinstance(node, Name):
        return known[node.name]
    arguments = [_run_in_fp32(argument, known) for argument in node.arguments]
    assert isinstance(node, Call)
    if node.function == "where":
        return np.where(*arguments)
    if node.function in COMPARISONS:
        return COMPARISONS[node.function][1](*arguments)
    if node.function in LOGIC:
        return LOGIC[node.function][1](*arguments)
    return np.asarray(FUNCTIONS[node.function].compute(*(a.astype(np.float64) for a in arguments))).astype(np.float32)


# Functions of any float, as they may be put into each other.
_UNARY = (
    "neg",
    "abs",
    "tanh",
    "sigmoid",
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "sin",
    "cos",
    "erf",
    "gelu_grad",
    "silu_grad",
    "bf16",
    "f16",
    "sign",
)


def _make_expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["x", "b", "0.1", "2", "-1.5"])

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("{}({})".format, st.sampled_from(_UNARY), inner),
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
            st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), inner, inner),
            st.builds("({} if {} > {} else {})".format, inner, inner, inner, inner),
            st.builds("exp(-abs({}))".format, inner),
            st.builds("({} / (1 + abs({})))".format, inner, inner),
            st.builds("sqrt(1 + abs({}))".format, inner),
        )

    return st.recursive(leaves, extend, max_leaves=8)


def test_a_root_of_what_may_be_either_of_two_has_a_finite_bound_and_an_infinite_one_stays_infinite() -> None:
    inputs = {"x": np.float32([[1.5]]), "b": np.float32([[0.05]])}
    for dtype in ("float32", "bfloat16"):
        root, log = (parse_chain("chain", f"x: T, b: T -> y: T; y = {f}(x if exp(x) > exp(x) else b)") for f in ("sqrt", "log"))
        assert np.sqrt(1.5) - np.sqrt(0.05) < find_bounds(root, inputs, dtype)["y"][0, 0] < 1.01
        assert np.isposinf(find_bounds(log, inputs, dtype)["y"][0, 0])


@given(expression=_make_expressions(), seed=st.integers(0, 2**16))
@settings(max_examples=150, deadline=None)
def test_whatever_is_computed_in_fp32_lies_within_the_bound(expression: str, seed: int) -> None:
    chain = parse_chain("chain", f"x: T, b: T -> y: f32; y = ({expression}) + 0 * x + 0 * b")
    rng = np.random.default_rng(seed)
    inputs = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in "xb"}
    exact = evaluate(chain, inputs)["y"]
    bound = find_bounds(chain, inputs, "float32")["y"]
    found = _run_in_fp32(chain.assignments[0][1], dict(inputs)).astype(np.float64)
    assert (np.abs(found - exact) <= bound).all()
    assert np.isfinite(bound[np.isfinite(exact)]).all()


def test_a_bound_is_tight_enough_to_refuse_bfloat16() -> None:
    chain = _parse("silu(x) * 0.5 + x")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    bound = find_bounds(chain, {"x": x}, "float32")["y"]
    assert (bound < 2.0**-18).all() and (bound > 0.0).all()


def test_a_comparison_that_is_too_close_may_come_out_either_way() -> None:
    chain = _parse("1 if exp(x) - exp(x) * 1 > 0 else 2")
    bound = find_bounds(chain, {"x": np.ones((1, 1))}, "float32")["y"]
    assert bound[0, 0] == pytest.approx(1.0)
    sure = _parse("1 if x > 0 else 2")
    assert find_bounds(sure, {"x": np.ones((1, 1))}, "float32")["y"][0, 0] == 0.0


# --------------------------------------------------------------------------------------------------------------- CUDA


def test_the_header_has_the_chain_and_its_operands() -> None:
    chain = parse_chain("mask", "x: T, m: bool, p: f32[] -> y: bf16, k: bool; k = m & keep(p); y = x * 0.1 if k else 0")
    text = write_chains("elementwise", {OWN: chain})
    assert "struct Chain<-1>" in text and 'kName = "mask"' in text and "kNumDraws = 1" in text
    assert "{Type::kGeneric, Extent::kFull}, {Type::kBool, Extent::kFull}, {Type::kFloat32, Extent::kOne}" in text
    assert "const bool v_k = (v_m && is_kept(words[0], v_p));" in text
    assert f"(v_k ? (v_x * {float.hex(float(np.float32(0.1)))}f) : 0x0.0p+0f)" in text
    assert "out[1] = v_k ? 1.0f : 0.0f;" in text


def test_draws_are_needed_where_something_is_drawn() -> None:
    chain = _parse("dropout(x, 0.25)")
    x = np.ones((3, 5))
    with pytest.raises(ValueError, match="needs draws"):
        evaluate(chain, {"x": x})
    draws = Draws(1, 2, np.arange(15).reshape(3, 5))
    kept = find_kept(draw_words(draws.elements, 1, 2), 0.25)
    np.testing.assert_array_equal(evaluate(chain, {"x": x}, draws)["y"], np.where(kept, 1.0 / 0.75, 0.0))


# ----------------------------------------------------------------------------------------------------------- counters


def test_counters_are_added_in_64_bits_and_read_as_fp32() -> None:
    chain = parse_chain("count", "n: i64, k: i64 -> m: i64, x: f32; m = n + k - 3; x = float(n) * 0.5")
    found = evaluate(chain, {"n": np.array([[2**40 + 1]]), "k": np.array([[5]])})
    assert (found["m"].dtype, int(found["m"][0, 0])) == (np.int64, 2**40 + 3)
    assert float(found["x"][0, 0]) == 2.0**39
    text = write_chains("elementwise", {OWN: chain})
    assert text.count("{Type::kFloat32, Extent::kFull}") == 4 + 3  # two words for each counter
    assert "out[1] = __uint_as_float(static_cast<unsigned>(v_m >> 32));" in text


@pytest.mark.parametrize(("factor", "expected"), [(0.5, 2**40 + 1), (0.0, 2**40), (np.nan, 2**40)])
def test_one_of_two_counters_is_taken(factor: float, expected: int) -> None:
    chain = parse_chain("count", "x: f32[], n: i64 -> m: i64; m = where(x > 0.0, n + 1, n)")
    found = evaluate(chain, {"x": np.array([[factor]]), "n": np.array([[2**40]])})
    assert (found["m"].dtype, int(found["m"][0, 0])) == (np.int64, expected)
    assert parse_chain("count", chain.text) == chain  # what is written reads back
    assert "const long long v_m = ((v_x > 0x0.0p+0f) ? (v_n + 1ll) : v_n);" in write_chains("elementwise", {OWN: chain})


def test_a_header_reads_back_as_its_chains() -> None:
    texts = ["x: T, b: T[columns] -> y: T; t = x + b; y = gelu(t)", "n: i64 -> m: i64; m = n + 1"]
    chains = {i: parse_chain(f"c{i}", text) for i, text in enumerate(texts)}
    assert read_chains(write_chains("elementwise", chains)) == chains


def test_a_meaning_is_that_of_what_is_computed_alone() -> None:
    listed = parse_chain("scale", "x: T, a: f32[] -> y: T; y = a * x")
    own = parse_chain("own", "u: T, v: T[] -> w: T; t = u * v; w = t")
    assert own.find_meaning("float32") == listed.find_meaning("float32")
    assert own.find_meaning("bfloat16") != listed.find_meaning("bfloat16")
    other = parse_chain("own", "u: T, v: T[] -> w: T; w = u - v")
    assert len({c.find_meaning("float32") for c in (own, other, parse_chain("own", "u: T, v: T[] -> w: T; w = v - u"))}) == 3


def test_a_tree_is_written_as_text_that_reads_back() -> None:
    chain = _parse("where(x > 0.5, dropout(x, 0.25), -x / 3)")
    assert _parse(format_node(chain.assignments[0][1])).assignments == chain.assignments
