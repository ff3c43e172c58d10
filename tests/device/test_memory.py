"""Buffers and arrays: what is written is what is read, and nothing beside it is touched."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from device import Device, DeviceError

DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.uint64, np.complex64, np.bool_]


def test_a_buffer_is_aligned_and_keeps_bytes(device: Device) -> None:
    buffers = [device.allocate(size) for size in (1, 255, 1000, 4096)]
    assert all(b.address % 256 == 0 and b.address for b in buffers)
    for seed, buffer in enumerate(buffers):
        buffer.write(np.random.default_rng(seed).integers(0, 256, buffer.size_bytes, dtype=np.uint8))
    for seed, buffer in enumerate(buffers):
        expected = np.random.default_rng(seed).integers(0, 256, buffer.size_bytes, dtype=np.uint8)
        np.testing.assert_array_equal(buffer.read(), expected)


def test_parts_of_a_buffer(device: Device) -> None:
    buffer = device.allocate(64)
    buffer.fill(0xAB)
    buffer.fill(0x11, offset_bytes=8, size_bytes=4)
    buffer.write(np.array([7.5], np.float32), offset_bytes=12)
    expected = np.full(64, 0xAB, np.uint8)
    expected[8:12] = 0x11
    expected[12:16] = np.array([7.5], np.float32).view(np.uint8)
    np.testing.assert_array_equal(buffer.read(), expected)
    np.testing.assert_array_equal(buffer.read(8, 8), expected[8:16])
    assert buffer.read(64).size == 0


@pytest.mark.parametrize(("offset", "size"), [(-1, 4), (0, 65), (60, 5), (65, None), (0, -1)])
def test_a_range_outside_the_buffer_is_refused(device: Device, offset: int, size: int | None) -> None:
    buffer = device.allocate(64)
    with pytest.raises(ValueError, match="64 bytes"):
        buffer.read(offset, size)
    with pytest.raises(ValueError, match="64 bytes"):
        buffer.fill(0, offset, size)


def test_bad_arguments_are_named(device: Device) -> None:
    buffer = device.allocate(64)
    with pytest.raises(ValueError, match="byte=256"):
        buffer.fill(256)
    with pytest.raises(ValueError, match="C-contiguous"):
        buffer.write(np.zeros((4, 4), np.float32).T[::2])
    with pytest.raises(ValueError, match="size_bytes=0"):
        device.allocate(0)


def test_out_of_memory_is_code_2_and_leaves_no_error_behind(device: Device) -> None:
    with pytest.raises(DeviceError) as caught:
        device.allocate(1 << 50)
    assert caught.value.code == 2
    assert "cudaErrorMemoryAllocation" in str(caught.value)
    assert device.take_last_error() == (0, "no error")
    assert device.allocate(1024).address


def test_a_freed_buffer_is_refused(device: Device) -> None:
    buffer = device.allocate(64)
    array = buffer.view((16,), np.float32)
    buffer.free()
    buffer.free()
    for use in (buffer.read, lambda: buffer.fill(0), lambda: buffer.view((1,), np.float32), array.copy_to_host):
        with pytest.raises(DeviceError, match="was freed"):
            use()


def test_an_array_keeps_its_buffer_alive(device: Device) -> None:
    array = device.asarray(np.arange(1000, dtype=np.float32))
    gc.collect()
    others = [device.empty((1000,)) for _ in range(8)]
    for other in others:
        other.copy_from_host(np.zeros(1000, np.float32))
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(1000, dtype=np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (4, 0, 3)])
def test_a_round_trip_keeps_every_bit(device: Device, dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    array = device.asarray(values)
    assert (array.shape, array.dtype, array.span_bytes) == (shape, values.dtype, values.nbytes)
    back = array.copy_to_host()
    assert back.dtype == values.dtype
    assert back.flags.c_contiguous
    np.testing.assert_array_equal(back, values)


def test_host_values_need_not_be_contiguous(device: Device) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6).T
    np.testing.assert_array_equal(device.asarray(values).copy_to_host(), values)


def test_padded_rows_leave_the_padding_alone(device: Device) -> None:
    buffer = device.allocate(6 * 40)
    buffer.fill(0xEE)
    array = buffer.view((5, 7), np.float32, offset_bytes=8, strides_bytes=(40, 4))
    values = np.random.default_rng(2).normal(size=(5, 7)).astype(np.float32)
    array.copy_from_host(values)
    np.testing.assert_array_equal(array.copy_to_host(), values)
    raw = buffer.read()
    for row in range(5):
        begin = 8 + row * 40
        raw[begin : begin + 28] = 0xEE
    assert (raw == 0xEE).all()


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """A shape, element strides with room between rows and axes in any order, and an offset in elements."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=4)))
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    step = draw(st.integers(1, 2))
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + draw(st.integers(0, 2))
    return shape, tuple(strides), draw(st.integers(0, 3))


@given(layout=layouts())
@settings(max_examples=60, deadline=None)
def test_any_layout_writes_its_elements_and_nothing_else(device: Device, layout: tuple[tuple[int, ...], tuple[int, ...], int]) -> None:
    shape, strides, offset = layout
    span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    mirror: NDArray[np.int32] = np.full(offset + span + 3, -1, np.int32)
    buffer = device.allocate(mirror.nbytes)
    buffer.write(mirror)
    values = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    array = buffer.view(shape, np.int32, offset * 4, [s * 4 for s in strides])
    array.copy_from_host(values)
    np.lib.stride_tricks.as_strided(mirror[offset:], shape, [s * 4 for s in strides])[...] = values
    np.testing.assert_array_equal(buffer.read().view(np.int32), mirror)
    np.testing.assert_array_equal(array.copy_to_host(), values)


@pytest.mark.parametrize(
    ("shape", "dtype", "offset", "strides", "match"),
    [
        ((17,), np.float32, 0, None, "64 bytes"),
        ((4, 4), np.float32, 4, None, "64 bytes"),
        ((4, 4), np.float32, 0, (20, 4), "64 bytes"),
        ((2,), np.float32, 2, None, "multiple of 4"),
        ((2, 2), np.float32, 0, (4,), "needs 2"),
        ((4, 4), np.float32, 0, (8, 4), "overlap"),
        ((4,), np.float32, 0, (0,), "overlap"),
        ((4,), np.float32, 12, (-4,), "backwards"),
        ((4,), np.float32, 0, (6,), "misaligned"),
        ((-1,), np.float32, 0, None, "negative"),
        ((1,), np.object_, 0, None, "only numbers"),
        ((4,), ">f4", 0, None, "the machine's byte order; use <f4"),
    ],
)
def test_a_bad_view_is_refused(device: Device, shape: Any, dtype: Any, offset: int, strides: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        device.allocate(64).view(shape, dtype, offset, strides)


@pytest.mark.parametrize("values", [np.zeros((3, 2), np.float32), np.zeros((2, 3), np.float64), np.zeros(6, np.float32)])
def test_values_of_another_shape_or_dtype_are_refused(device: Device, values: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"float32\[2, 3\]"):
        device.empty((2, 3)).copy_from_host(values)


def test_a_copy_has_the_machines_byte_order(device: Device) -> None:
    values = np.arange(6, dtype=">f4").reshape(2, 3)
    array = device.asarray(values)
    assert array.dtype.str == "<f4" and np.array_equal(array.copy_to_host(), values)
    with pytest.raises(ValueError, match=r"the array is float32\[2, 3\], the values are >f4\[2, 3\]"):
        array.copy_from_host(values)


def test_a_masked_array_is_refused(device: Device) -> None:
    masked = np.ma.masked_equal(np.arange(6, dtype=np.float32), 3)
    for copy in (device.asarray, device.empty((6,)).copy_from_host, device.allocate(24).write):
        with pytest.raises(TypeError, match=r"got a masked array; fill it first"):
            copy(masked)


def test_the_cuda_array_interface_names_address_shape_and_strides(device: Device) -> None:
    buffer = device.allocate(256)
    array = buffer.view((3, 4), np.float32, 32, (32, 4))
    described = array.__cuda_array_interface__
    assert described["data"] == (buffer.address + 32, False)
    assert described["shape"] == (3, 4)
    assert described["strides"] == (32, 4)
    assert described["typestr"] == "<f4"
    assert described["version"] == 3
    assert array.span_bytes == 2 * 32 + 4 * 4
