"""CUDA arrays, and the host's side of texture and surface objects. What kernels read through them is another file's subject."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np
import pytest

from .cuda_runtime import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Runtime

UNSIGNED, FLOAT = 1, 2
LAYERED, SURFACE, CUBEMAP = 1, 2, 4
INVALID_VALUE, INVALID_CHANNEL, INVALID_FILTER, INVALID_HANDLE, CONTEXT_DESTROYED = 1, 20, 26, 400, 709


class Format(ctypes.Structure):
    """``cudaChannelFormatDesc``."""

    _fields_ = (("x", c_int), ("y", c_int), ("z", c_int), ("w", c_int), ("kind", c_int))


class Extent(ctypes.Structure):
    """``cudaExtent``, and ``cudaPos``."""

    _fields_ = (("width", c_size_t), ("height", c_size_t), ("depth", c_size_t))


class Pitched(ctypes.Structure):
    """``cudaPitchedPtr``."""

    _fields_ = (("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t))


class Copy3D(ctypes.Structure):
    """``cudaMemcpy3DParms``."""

    _fields_ = (
        ("src_array", c_void_p),
        ("src_pos", Extent),
        ("src", Pitched),
        ("dst_array", c_void_p),
        ("dst_pos", Extent),
        ("dst", Pitched),
        ("extent", Extent),
        ("kind", c_int),
    )


class Resource(ctypes.Structure):
    """``cudaResourceDesc`` of an array."""

    _fields_ = (("kind", c_int), ("array", c_void_p), ("rest", c_int * 30), ("flags", c_uint))


class Texture(ctypes.Structure):
    """``cudaTextureDesc``."""

    _fields_ = (
        ("address", c_int * 3),
        ("filter", c_int),
        ("read", c_int),
        ("srgb", c_int),
        ("border", c_float * 4),
        ("normalized", c_int),
        ("anisotropy", c_uint),
        ("mipmap", c_int * 4),
        ("trilinear", c_int),
        ("seamless", c_int),
    )


FLOAT1 = Format(32, 0, 0, 0, FLOAT)


def make(cuda: Runtime, width: int, height: int = 0, flags: int = 0, fmt: Format = FLOAT1) -> int:
    return cuda.made("cudaMallocArray", ctypes.byref(fmt), width, height, c_uint(flags))


def test_rows_go_into_an_array_and_come_back(cuda: Runtime) -> None:
    array, values, out = make(cuda, 10, 4), np.arange(40, dtype=np.float32).reshape(4, 10), np.zeros((4, 10), np.float32)
    cuda.call("cudaMemcpy2DToArray", array, 0, 0, values.ctypes.data, 40, 40, 4, c_int(HOST_TO_DEVICE))
    cuda.call("cudaMemcpy2DFromArray", out.ctypes.data, 40, array, 0, 0, 40, 4, c_int(DEVICE_TO_HOST))
    np.testing.assert_array_equal(out, values)
    part = np.zeros((2, 3), np.float32)
    cuda.call("cudaMemcpy2DFromArray", part.ctypes.data, 12, array, 8, 1, 12, 2, c_int(DEVICE_TO_HOST))
    np.testing.assert_array_equal(part, values[1:3, 2:5])
    twin = make(cuda, 10, 4)
    cuda.call("cudaMemcpy2DArrayToArray", twin, 0, 0, array, 0, 0, 40, 4, c_int(DEVICE_TO_DEVICE))
    cuda.call("cudaMemcpy2DFromArray", out.ctypes.data, 40, twin, 0, 0, 40, 4, c_int(DEVICE_TO_HOST))
    np.testing.assert_array_equal(out, values)
    cuda.call("cudaFreeArray", array)
    cuda.call("cudaFreeArray", twin)
    assert cuda.code("cudaFreeArray", array) in (INVALID_HANDLE, CONTEXT_DESTROYED)  # the second is what an H200 says


def test_a_volume_is_copied_in_elements(cuda: Runtime) -> None:
    fmt = Format(8, 8, 8, 8, UNSIGNED)
    array = cuda.made("cudaMalloc3DArray", ctypes.byref(fmt), Extent(6, 5, 4), c_uint(0))
    values, out = np.arange(120, dtype=np.uint32).reshape(4, 5, 6), np.zeros((4, 5, 6), np.uint32)
    to = Copy3D(src=Pitched(values.ctypes.data, 24, 6, 5), dst_array=array, extent=Extent(6, 5, 4), kind=HOST_TO_DEVICE)
    cuda.call("cudaMemcpy3D", ctypes.byref(to))
    back = Copy3D(src_array=array, src_pos=Extent(1, 0, 2), extent=Extent(5, 5, 2), kind=DEVICE_TO_HOST)
    back.dst = Pitched(out.ctypes.data, 24, 6, 5)
    cuda.call("cudaMemcpy3D", ctypes.byref(back))
    np.testing.assert_array_equal(out[:2, :, :5], values[2:, :, 1:])
    assert not out[:, :, 5].any()
    extent, flags, found = Extent(), c_uint(), Format()
    cuda.call("cudaArrayGetInfo", ctypes.byref(found), ctypes.byref(extent), ctypes.byref(flags), array)
    assert (extent.width, extent.height, extent.depth, found.w) == (6, 5, 4, 8)
    beyond = Copy3D(src=Pitched(values.ctypes.data, 28, 7, 5), dst_array=array, extent=Extent(7, 5, 4), kind=HOST_TO_DEVICE)
    assert cuda.code("cudaMemcpy3D", ctypes.byref(beyond)) == INVALID_VALUE
    cuda.call("cudaFreeArray", array)


def test_a_run_of_bytes_goes_on_through_the_rows(cuda: Runtime) -> None:
    array, values = make(cuda, 10, 4), np.arange(40, dtype=np.float32)
    cuda.call("cudaMemcpyToArray", array, 0, 0, values.ctypes.data, 160, c_int(HOST_TO_DEVICE))
    part = np.full(27, 100, np.float32)
    cuda.call("cudaMemcpyToArray", array, 12, 1, part.ctypes.data, 108, c_int(HOST_TO_DEVICE))
    values[13:] = part
    back = np.zeros(33, np.float32)
    cuda.call("cudaMemcpyFromArray", back.ctypes.data, array, 28, 0, 132, c_int(DEVICE_TO_HOST))
    assert np.array_equal(back, values[7:])
    assert cuda.code("cudaMemcpyToArray", array, 12, 3, part.ctypes.data, 108, c_int(HOST_TO_DEVICE)) == INVALID_VALUE


def test_the_levels_of_a_mipmapped_array_halve(cuda: Runtime) -> None:
    whole = cuda.made("cudaMallocMipmappedArray", ctypes.byref(FLOAT1), Extent(16, 8, 0), c_uint(9), c_uint(0))
    sizes = []
    for level in range(5):
        array, extent = cuda.made("cudaGetMipmappedArrayLevel", whole, c_uint(level)), Extent()
        cuda.call("cudaArrayGetInfo", None, ctypes.byref(extent), None, array)
        sizes.append((extent.width, extent.height))
    assert sizes == [(16, 8), (8, 4), (4, 2), (2, 1), (1, 1)]
    out = c_void_p()
    assert cuda.code("cudaGetMipmappedArrayLevel", ctypes.byref(out), whole, c_uint(5)) == INVALID_VALUE
    cuda.call("cudaFreeMipmappedArray", whole)


@pytest.mark.parametrize(
    ("fmt", "extent", "flags", "code"),
    [
        (Format(32, 32, 32, 0, FLOAT), Extent(4, 4, 0), 0, INVALID_CHANNEL),
        (Format(24, 0, 0, 0, UNSIGNED), Extent(4, 4, 0), 0, INVALID_CHANNEL),
        (FLOAT1, Extent(0, 4, 0), 0, INVALID_VALUE),
        (FLOAT1, Extent(1 << 30, 4, 0), 0, INVALID_VALUE),
        (FLOAT1, Extent(4, 5, 6), CUBEMAP, INVALID_VALUE),
    ],
)
def test_impossible_arrays_are_refused(emulator: Runtime, fmt: Format, extent: Extent, flags: int, code: int) -> None:
    out = c_void_p()
    assert emulator.code("cudaMalloc3DArray", ctypes.byref(out), ctypes.byref(fmt), extent, c_uint(flags)) == code


def test_texture_objects_are_checked_and_described(cuda: Runtime) -> None:
    array = make(cuda, 8, 8)
    resource, texture, handle = Resource(kind=0, array=array), Texture(filter=1), c_ulonglong()
    cuda.call("cudaCreateTextureObject", ctypes.byref(handle), ctypes.byref(resource), ctypes.byref(texture), None)
    assert handle.value != 0
    found = Texture()
    cuda.call("cudaGetTextureObjectTextureDesc", ctypes.byref(found), handle)
    assert found.filter == 1
    cuda.call("cudaDestroyTextureObject", handle)
    integers = make(cuda, 8, 8, fmt=Format(32, 0, 0, 0, UNSIGNED))
    resource = Resource(kind=0, array=integers)
    code = cuda.code("cudaCreateTextureObject", ctypes.byref(handle), ctypes.byref(resource), ctypes.byref(texture), None)
    assert code == INVALID_FILTER  # linear filtering of integers that are read as integers
    cuda.call("cudaFreeArray", array)
    cuda.call("cudaFreeArray", integers)


@pytest.mark.parametrize(("flags", "reported"), [(0, ["surface_flag"]), (SURFACE, [])])
def test_a_surface_of_an_array_not_made_for_it_is_reported(emulator: Runtime, flags: int, reported: list[str]) -> None:
    array, handle = make(emulator, 8, 8, flags), c_ulonglong()
    emulator.call("cudaCreateSurfaceObject", ctypes.byref(handle), ctypes.byref(Resource(kind=0, array=array)))
    assert [report["kind"] for report in emulator.reports()] == reported
    emulator.call("cudaDestroySurfaceObject", handle)
    emulator.call("cudaFreeArray", array)
