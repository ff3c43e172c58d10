"""CUDA arrays and texture objects, as the host sees them: allocation, copies in every direction, what is refused."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np
import pytest

from .cuda_runtime import Runtime

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
LAYERED, SURFACE, CUBEMAP = 1, 2, 4
INVALID_VALUE, BAD_CHANNELS, BAD_FILTER, BAD_NORM, BAD_HANDLE = 1, 20, 26, 27, 400


class Channels(ctypes.Structure):
    _fields_ = (("x", c_int), ("y", c_int), ("z", c_int), ("w", c_int), ("f", c_int))


class Extent(ctypes.Structure):
    _fields_ = (("width", c_size_t), ("height", c_size_t), ("depth", c_size_t))


class PitchedPtr(ctypes.Structure):
    _fields_ = (("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t))


class Copy3D(ctypes.Structure):
    _fields_ = (
        ("src_array", c_void_p),
        ("src_pos", Extent),
        ("src", PitchedPtr),
        ("dst_array", c_void_p),
        ("dst_pos", Extent),
        ("dst", PitchedPtr),
        ("extent", Extent),
        ("kind", c_int),
    )


class TextureDesc(ctypes.Structure):
    _fields_ = (
        ("address", c_int * 3),
        ("filter", c_int),
        ("read", c_int),
        ("srgb", c_int),
        ("border", ctypes.c_float * 4),
        ("normalized", c_int),
        ("anisotropy", c_uint),
        ("mip", c_int),
        ("bias", ctypes.c_float * 3),
        ("rest", c_int * 2),
    )


FLOAT = Channels(32, 0, 0, 0, 2)
BYTES4 = Channels(8, 8, 8, 8, 1)


def resource(kind: int, handle: int) -> ctypes.Array[ctypes.c_char]:
    """A cudaResourceDesc of an array."""
    raw = ctypes.create_string_buffer(144)
    raw[0:4] = kind.to_bytes(4, "little")
    raw[8:16] = handle.to_bytes(8, "little")
    return raw


@pytest.fixture
def image(cuda: Runtime):  # type: ignore[no-untyped-def]
    array = c_void_p()
    cuda.call("cudaMallocArray", byref(array), byref(FLOAT), c_size_t(20), c_size_t(6), c_uint(SURFACE))
    yield array
    cuda.call("cudaFreeArray", array)


def test_copies_through_an_array(cuda: Runtime, image: c_void_p) -> None:
    values = np.arange(120, dtype=np.float32).reshape(6, 20)
    cuda.call(
        "cudaMemcpy2DToArray",
        image,
        c_size_t(0),
        c_size_t(0),
        c_void_p(values.ctypes.data),
        c_size_t(80),
        c_size_t(80),
        c_size_t(6),
        TO_DEVICE,
    )
    part = np.zeros((3, 5), np.float32)
    cuda.call(
        "cudaMemcpy2DFromArray",
        c_void_p(part.ctypes.data),
        c_size_t(20),
        image,
        c_size_t(16),
        c_size_t(2),
        c_size_t(20),
        c_size_t(3),
        TO_HOST,
    )
    assert (part == values[2:5, 4:9]).all()


def test_copy_that_leaves_the_array(emulator: Runtime, image: c_void_p) -> None:
    values = np.zeros((6, 20), np.float32)
    code = emulator.code(
        "cudaMemcpy2DToArray",
        image,
        c_size_t(4),
        c_size_t(0),
        c_void_p(values.ctypes.data),
        c_size_t(80),
        c_size_t(80),
        c_size_t(6),
        TO_DEVICE,
    )
    assert code == INVALID_VALUE


def test_layers_and_slices(cuda: Runtime) -> None:
    """Positions and extents of the general copy are in elements where an array takes part."""
    values = np.arange(3 * 4 * 8 * 4, dtype=np.uint8).reshape(3, 4, 8, 4)
    for flags in (0, LAYERED):
        array = c_void_p()
        cuda.call("cudaMalloc3DArray", byref(array), byref(BYTES4), Extent(8, 4, 3), c_uint(flags))
        cuda.call(
            "cudaMemcpy3D",
            byref(Copy3D(src=PitchedPtr(values.ctypes.data, 32, 32, 4), dst_array=array, extent=Extent(8, 4, 3), kind=TO_DEVICE)),
        )
        slice_ = np.zeros((4, 2, 4), np.uint8)
        cuda.call(
            "cudaMemcpy3D",
            byref(
                Copy3D(
                    src_array=array,
                    src_pos=Extent(3, 0, 1),
                    dst=PitchedPtr(slice_.ctypes.data, 8, 8, 4),
                    extent=Extent(2, 4, 1),
                    kind=TO_HOST,
                )
            ),
        )
        assert (slice_ == values[1, :, 3:5]).all()
        cuda.call("cudaFreeArray", array)


def test_levels_of_a_mipmapped_array(cuda: Runtime) -> None:
    whole, level = c_void_p(), c_void_p()
    cuda.call("cudaMallocMipmappedArray", byref(whole), byref(FLOAT), Extent(16, 8, 0), c_uint(9), c_uint(0))
    extent = Extent()
    for number, size in enumerate(((16, 8), (8, 4), (4, 2), (2, 1), (1, 1))):
        cuda.call("cudaGetMipmappedArrayLevel", byref(level), whole, c_uint(number))
        cuda.call("cudaArrayGetInfo", None, byref(extent), None, level)
        assert (extent.width, extent.height) == size
    assert cuda.code("cudaGetMipmappedArrayLevel", byref(level), whole, c_uint(5)) == INVALID_VALUE
    cuda.call("cudaFreeMipmappedArray", whole)


@pytest.mark.parametrize("channels", [(24, 0, 0, 0, 1), (8, 8, 8, 0, 1), (8, 0, 0, 0, 2), (8, 16, 0, 0, 1), (0, 0, 0, 0, 3)])
def test_channel_formats_that_do_not_exist(emulator: Runtime, channels: tuple[int, ...]) -> None:
    array = c_void_p()
    assert emulator.code("cudaMallocArray", byref(array), byref(Channels(*channels)), c_size_t(4), c_size_t(4), c_uint(0)) == BAD_CHANNELS


def test_texture_settings(emulator: Runtime, image: c_void_p) -> None:
    made = c_ulonglong()
    good = TextureDesc(filter=1)
    desc = resource(0, image.value or 0)
    emulator.call("cudaCreateTextureObject", byref(made), desc, byref(good), None)
    assert made.value != 0
    seen = TextureDesc()
    emulator.call("cudaGetTextureObjectTextureDesc", byref(seen), made)
    assert seen.filter == 1
    emulator.call("cudaDestroyTextureObject", made)
    assert emulator.code("cudaDestroyTextureObject", made) == INVALID_VALUE

    words = c_void_p()
    emulator.call("cudaMallocArray", byref(words), byref(Channels(32, 0, 0, 0, 1)), c_size_t(4), c_size_t(4), c_uint(0))
    desc = resource(0, words.value or 0)
    assert emulator.code("cudaCreateTextureObject", byref(made), desc, byref(TextureDesc(filter=1)), None) == BAD_FILTER
    assert emulator.code("cudaCreateTextureObject", byref(made), desc, byref(TextureDesc(read=1)), None) == BAD_NORM
    assert emulator.code("cudaCreateSurfaceObject", byref(made), desc) == INVALID_VALUE, "not made for surfaces"
    emulator.call("cudaFreeArray", words)
    assert emulator.code("cudaCreateTextureObject", byref(made), desc, byref(good), None) == BAD_HANDLE
