"""Tensors in device memory: guards and row padding are watched, exact allocations are exact, nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.spec import Op, Problem, Role, Strides, Tensor
from harness.verify.allocations import GUARD_BYTES, POISON_FINITE, Layout
from harness.verify.case import Case, plan_arguments
from harness.verify.inputs import make_inputs
from tests.harness.fake_device import FakeArray, FakeBuffer, FakeDevice
from tests.harness.toy_op import ToyKernel, make_toy

CUBE = make_toy(
    tensors=(
        Tensor("X", ("P", "M", "N"), Role.INPUT, can_pad_rows=True),
        Tensor("Y", ("M", "N"), Role.OUTPUT, "float16", can_pad_rows=True),
    ),
    problems=(Problem({"P": 2, "M": 3, "N": 4}, padding={"X": 5, "Y": 3}),),
    attributes=(),
)


def open_case(op: Op, layout: Layout = Layout.GUARDED, problem: int = 0) -> tuple[Case, dict[str, Any]]:
    case = Case(FakeDevice(), op, op.problems[problem], layout)
    case.upload(make_inputs(op, op.problems[problem]))
    return case, case.arguments


def find_buffer(array: FakeArray) -> tuple[FakeBuffer, int]:
    return array.owner, array.address - array.owner.address


def test_shapes_strides_and_values_arrive() -> None:
    case, arguments = open_case(CUBE)
    x, y = arguments["X"], arguments["Y"]
    assert (x.shape, x.strides_bytes) == ((2, 3, 4), (3 * 9 * 4, 9 * 4, 4))
    assert (y.shape, y.strides_bytes, y.dtype) == ((3, 4), (7 * 2, 2), np.dtype("float16"))
    assert np.array_equal(x.host, make_inputs(CUBE, CUBE.problems[0])["X"])
    assert np.isnan(y.host).all()
    assert case.find_unwritten(case.read_outputs())["Y"].all()
    assert case.find_damage() == []
    assert case.find_modified_inputs() == []
    assert case.find_touched() == []


@settings(max_examples=60, deadline=None)
@given(tensor=st.sampled_from(["X", "Y"]), data=st.data())
def test_any_byte_written_beside_the_elements_is_found(tensor: str, data: st.DataObject) -> None:
    case, arguments = open_case(CUBE)
    buffer, start = find_buffer(arguments[tensor])
    place = data.draw(st.integers(0, buffer.size_bytes - 1))
    buffer.host[place] ^= 1
    inside = start <= place < start + arguments[tensor].span_bytes
    stride = arguments[tensor].strides_bytes[-2]
    is_element = inside and (place - start) % stride < arguments[tensor].shape[-1] * arguments[tensor].dtype.itemsize
    damage = case.find_damage()
    if is_element:
        assert damage == []
        assert bool(case.find_modified_inputs()) is (tensor == "X")
        assert case.find_touched() == (["Y"] if tensor == "Y" else [])
    else:
        assert [(d.tensor, d.num_bytes, d.offset_bytes) for d in damage] == [(tensor, 1, place - start)]
        assert damage[0].where == ("in the row padding of" if inside else "before" if place < start else "after")
        assert f"{place - start}" in damage[0].describe()


def test_exact_allocations_hold_the_elements_and_nothing_more() -> None:
    _, arguments = open_case(CUBE, Layout.EXACT)
    for name in ("X", "Y"):
        buffer, start = find_buffer(arguments[name])
        assert (start, buffer.size_bytes) == (0, arguments[name].span_bytes)
    assert not arguments["Y"].host.any(), "outputs are not written before the run"
    guarded, start = find_buffer(open_case(CUBE)[1]["X"])
    assert (start, guarded.size_bytes) == (GUARD_BYTES, arguments["X"].span_bytes + 2 * GUARD_BYTES)


def test_absent_tensors_are_none_and_switches_are_not_passed() -> None:
    _, arguments = open_case(make_toy(), problem=2)
    assert arguments["bias"] is None
    assert set(arguments) == {"A", "B", "bias", "Y", "relu"}


@pytest.mark.parametrize("layout", list(Layout))
def test_workspace_has_the_size_asked_for_and_is_watched(layout: Layout) -> None:
    case, _ = open_case(make_toy(), layout)
    assert case.workspace_address == 0
    case.prepare(ToyKernel(FakeDevice(), workspace=100))
    first = case.workspace_address
    assert first != 0
    case.prepare(ToyKernel(FakeDevice(), workspace=100))
    assert case.workspace_address == first
    assert case._workspace is not None
    buffer, start = find_buffer(case._workspace.array)  # type: ignore[arg-type]
    assert buffer.size_bytes == 100 + 2 * start
    if layout is Layout.GUARDED:
        buffer.host[start + 100] = 0
        assert [(d.tensor, d.where, d.offset_bytes) for d in case.find_damage()] == [("workspace", "after", 100)]
    case.prepare(ToyKernel(FakeDevice()))
    assert case.workspace_address == 0


def test_poison_restores_the_guards_and_can_be_another_byte() -> None:
    case, arguments = open_case(CUBE)
    buffer, _ = find_buffer(arguments["Y"])
    buffer.host[:] = 0
    case.poison(POISON_FINITE)
    assert case.find_damage() == []
    assert np.isfinite(arguments["Y"].host).all()
    assert case.find_unwritten(case.read_outputs())["Y"].all()


def test_leaving_frees_everything_even_after_an_error() -> None:
    device = FakeDevice()
    with pytest.raises(KeyError), Case(device, CUBE, CUBE.problems[0]) as case:
        case.ensure_workspace(64)
        raise KeyError
    assert device.num_live == 0


def test_an_offset_moves_the_base_address_and_its_guards() -> None:
    problem = Problem({"P": 2, "M": 3, "N": 4}, padding={"X": 5}, offsets={"X": 3, "Y": 1})
    for layout in Layout:
        with Case(FakeDevice(), CUBE, problem, layout) as case:
            inputs = make_inputs(CUBE, problem)
            case.upload(inputs)
            buffer, start = find_buffer(case.arguments["X"])
            assert start % 256 == 12 and np.array_equal(case.arguments["X"].host, inputs["X"])
            assert case.find_input(buffer.address + 20) == "X" and case.find_input(case.arguments["Y"].address) == ""
            if layout is Layout.GUARDED:
                assert case.find_damage() == []
                buffer.host[start - 1] ^= 1
                assert [(d.where, d.offset_bytes) for d in case.find_damage()] == [("before", -1)]


def test_planned_arguments_are_those_of_a_case_without_memory() -> None:
    problem = Problem({"P": 2, "M": 3, "N": 4}, padding={"X": 5}, offsets={"X": 3})
    planned = plan_arguments(CUBE, problem)
    with Case(FakeDevice(), CUBE, problem) as case:
        for name, array in case.arguments.items():
            assert (planned[name].shape, planned[name].dtype) == (array.shape, array.dtype)
            assert (planned[name].strides_bytes, planned[name].address % 256) == (
                array.strides_bytes,
                (array.address - array.owner.address) % 256,
            )


def test_a_grid_of_elements_is_written_and_read_alone() -> None:
    problem = Problem({"P": 2, "M": 3, "N": 4}, padding={"X": 5})
    grid = (np.array([1]), np.array([0, 2]), np.array([1, 3]))
    values = np.arange(4, dtype=np.float32).reshape(1, 2, 2) + 1
    with Case(FakeDevice(), CUBE, problem, Layout.EXACT) as case:
        case.write_grid("X", grid, values)
        assert np.array_equal(case.read_grid("X", grid), values)
        assert case.arguments["X"].host.sum() == values.sum()
        whole = make_inputs(CUBE, problem)["X"]
        case.write_grid("X", tuple(map(np.arange, whole.shape)), whole)
        assert np.array_equal(case.arguments["X"].host, whole)


@pytest.mark.parametrize("padding", [{}, {"X": (0, 0, 0)}, {"X": (7, 3, 0)}, {"X": (0, 0, 1)}], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=str)
def test_a_grid_of_elements_in_any_order_in_memory(order: tuple[int, ...], padding: dict[str, Any]) -> None:
    """Elements come back where they were put, and nothing between the rows is touched."""
    tensor = Tensor("X", ("P", "M", "N"), Role.INPUT, "float32", strides=Strides.ANY)
    op = replace(CUBE, tensors=(tensor, *CUBE.tensors[1:]))
    problem = Problem({"P": 3, "M": 4, "N": 5}, padding=padding, orders={"X": order})
    grid = (np.array([0, 2]), np.array([0, 1, 3]), np.array([1, 4]))
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 2) + 1
    with Case(FakeDevice(), op, problem, Layout.EXACT) as case:
        array = case.arguments["X"]
        buffer, _ = find_buffer(array)
        case.write_grid("X", grid, values)
        assert np.array_equal(array.host[np.ix_(*grid)], values) and array.host.sum() == values.sum()
        assert np.array_equal(case.read_grid("X", grid), values)
        buffer.host[...] = 0xA5
        whole = make_inputs(op, problem)["X"]
        case.write_grid("X", tuple(map(np.arange, whole.shape)), whole)
        assert np.array_equal(array.host, whole)
        array.host.view(np.uint32)[...] = 0xA5A5A5A5
        assert (buffer.host == 0xA5).all()
