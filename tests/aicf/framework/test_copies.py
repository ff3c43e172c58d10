"""Slices, joins, pads and permutations as strided copies: they mean what NumPy means, in as few launches as there can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn
from aicf import functional as F
from aicf.opset import Attrs, Builder, Type, find_op, type_of
from aicf.opset.copies import COPY, lower_concat, lower_pad, lower_permute, lower_slice
from device import Device
from tests.aicf.planning import without_kernels


class Applied(nn.Module):
    """A function as a network."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class NumpyBuilder(Builder):
    """Evaluates calls as they are made, and lists the ops that need a launch."""

    def __init__(self) -> None:
        self.launches: list[str] = []

    def call(self, op: str, inputs: Sequence[Any], attrs: Attrs) -> tuple[Any, ...]:
        known = find_op(op)
        if not known.is_view:
            self.launches.append(op)
        return known.evaluate(inputs, known.fill(attrs))

    def type_of(self, value: Any) -> Type:
        return Type(value.dtype.name, value.shape)


def lower(rule: Callable[..., Any], inputs: Sequence[Any], attrs: Attrs) -> tuple[Any, list[str]]:
    """Return what a rule's calls make, and those that are launches."""
    builder = NumpyBuilder()
    (made,) = rule(builder, inputs, attrs)
    return made, builder.launches


@given(st.permutations(range(7)), st.lists(st.integers(1, 3), min_size=7, max_size=7))
def test_a_permutation_of_any_axes_means_what_numpy_does(order: list[int], shape: list[int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    made, launches = lower(lower_permute, [x], {"order": tuple(order)})
    np.testing.assert_array_equal(made, x.transpose(order))
    assert set(launches) <= {COPY} and len(launches) <= 3


@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (0, 2, 3, 4, 1), (3, 0, 4, 1, 2), (0, 1, 3, 2, 4)])
def test_five_axes_are_permuted_by_one_launch(order: tuple[int, ...]) -> None:
    x = np.arange(2 * 3 * 4 * 5 * 6, dtype=np.float16).reshape(2, 3, 4, 5, 6)
    made, launches = lower(lower_permute, [x], {"order": order})
    np.testing.assert_array_equal(made, x.transpose(order))
    assert launches == [COPY]


def test_a_matrix_in_fp32_is_turned_by_its_own_op() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert lower(lower_permute, [x], {"order": (1, 0)})[1] == ["transpose"]
    assert lower(lower_permute, [x.astype(np.float16)], {"order": (1, 0)})[1] == [COPY]


def test_what_has_no_axes_is_padded_by_nothing() -> None:
    pad = find_op("Pad")
    (made,) = pad.evaluate([np.array(3.0, np.float32)], pad.fill({"before": (), "after": ()}))
    assert made.shape == () and made == 3.0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=7))
def test_slices_and_pads_undo_each_other(axes: list[tuple[int, int, int]]) -> None:
    shape, before, after = zip(*axes, strict=True)
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    padded, launches = lower(lower_pad, [x], {"before": before, "after": after})
    np.testing.assert_array_equal(padded, np.pad(x, list(zip(before, after, strict=True))))
    grown = sum(b + a > 0 for b, a in zip(before, after, strict=True))
    assert set(launches) <= {COPY} and len(launches) <= max(1, (grown + 1) // 2)
    stops = tuple(b + n for b, n in zip(before, shape, strict=True))
    back, launches = lower(lower_slice, [padded], {"starts": before, "stops": stops})
    np.testing.assert_array_equal(back, x)
    assert launches == [COPY] * (grown if grown < 2 else 1) or grown > 2


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 2))
def test_parts_joined_are_numpys(lengths: list[int], axis: int) -> None:
    shapes = [[2, 3, 4] for _ in lengths]
    for shape, length in zip(shapes, lengths, strict=True):
        shape[axis] = length
    parts = [np.full(shape, i, np.uint8) for i, shape in enumerate(shapes)]
    there = sum(length > 0 for length in lengths)
    if not there:
        assert lower_concat(NumpyBuilder(), parts, {"axis": axis}) is None
        return
    made, launches = lower(lower_concat, parts, {"axis": axis})
    np.testing.assert_array_equal(made, np.concatenate(parts, axis))
    assert launches == [COPY] * (0 if there == 1 else 1 if there <= 8 else -(-there // 8) + 1 - (there % 8 == 1))


# Functions, and in how many launches.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "cut": (lambda x: x[1:, :, 2:7, 1:3], 1),
    "permute": (lambda x: x.permute(3, 1, 0, 2), 1),
    "channels last": (lambda x: x.permute(0, 2, 3, 1), 1),
    "cut and join": (lambda x: F.concat([x[:, :1], x, x[:, 2:], x[:, :2], x], 1), 4),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 3), (0, 0, 2, 0)), 1),
}
VALUES = np.random.default_rng(5).normal(size=(2, 3, 9, 5)).astype(np.float32)
DTYPES = ["float32", "float16", "bfloat16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plan_has_a_launch_for_each(device: Device, name: str, dtype: str) -> None:
    function, count = FUNCTIONS[name]
    with without_kernels():
        program = aicf.compile(Applied(function), (Tensor(VALUES).cast(dtype),), backend="cuda")
    assert [s.op for s in program.plan.steps if not find_op(s.op).is_view] == [COPY] * count


@pytest.mark.slow  # nvcc takes three quarters of a minute for the kernel that copies such small arrays
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_copied_on_a_device_is_what_numpy_copies(device: Device, name: str, dtype: str) -> None:
    function, _ = FUNCTIONS[name]
    x = Tensor(VALUES, backend="cuda").cast(dtype)
    made = aicf.compile(Applied(function), (x,), backend="cuda")(x)
    expected = function(Tensor(VALUES, backend="numpy").cast(dtype))
    assert made.type == expected.type
    np.testing.assert_array_equal(made.cast("float32").numpy(), expected.cast("float32").numpy())


def test_pieces_outside_their_arrays_are_refused() -> None:
    x = np.zeros((2, 4), np.float32)
    attrs: dict[str, Any] = {
        "shape": (2, 2),
        "extents": (1, 2, 1, 1),
        "lengths": (2,),
        "sources": (0,),
        "in_offsets": (0,),
        "out_offsets": (0,),
        "in_strides": (8, 4, 1, 1, 1),
        "out_strides": (4, 2, 1, 1, 1),
    }
    np.testing.assert_array_equal(find_op(COPY).evaluate((None, x), attrs)[0], x[:, :2])
    with pytest.raises(ValueError, match=r"strided_copy: piece 0, \(1, 2, 2, 1, 1\) at 3 with strides .* is not inside float32\[2,4\]"):
        find_op(COPY).evaluate((None, x), {**attrs, "in_offsets": (3,)})
    with pytest.raises(ValueError, match=r"4 elements do not fill float32\[3,2\]"):
        find_op(COPY).evaluate((None, x), {**attrs, "shape": (3, 2)})
    with pytest.raises(ValueError, match=r"takes 1 to 8 pieces"):
        find_op(COPY).evaluate((None, x), {**attrs, "lengths": (2, 2)})
    with pytest.raises(TypeError, match=r"expected arrays of one dtype"):
        find_op(COPY).evaluate((None, x, x.astype(np.float16)), attrs)
    assert type_of(x) == Type("float32", (2, 4))
