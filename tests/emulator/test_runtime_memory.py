"""Allocation, copies, fills, pointer queries, misuse. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import COPY_DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, HOST_TO_HOST, Runtime, run_isolated

INVALID_VALUE, OUT_OF_MEMORY, INVALID_PITCH, INVALID_DIRECTION = 1, 2, 12, 21


class PointerAttributes(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("device", c_int),
        ("device_pointer", c_void_p),
        ("host_pointer", c_void_p),
        ("reserved", ctypes.c_long * 8),
    )


class Extent(ctypes.Structure):
    _fields_ = (("width", c_size_t), ("height", c_size_t), ("depth", c_size_t))


class PitchedPtr(ctypes.Structure):
    _fields_ = (("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t))


def attributes_of(cuda: Runtime, address: int) -> PointerAttributes:
    out = PointerAttributes()
    cuda.call("cudaPointerGetAttributes", byref(out), address)
    return out


def test_a_round_trip(cuda: Runtime) -> None:
    values = np.random.default_rng(1).integers(0, 2**32, 1000, np.uint32)
    address = cuda.alloc(values)
    assert address % 256 == 0
    np.testing.assert_array_equal(cuda.read(address, 1000), values)
    cuda.call("cudaFree", address)


def test_edges_of_malloc_and_free(cuda: Runtime) -> None:
    out = c_void_p(1)
    cuda.call("cudaMalloc", byref(out), 0)
    assert out.value is None
    cuda.call("cudaFree", 0)
    assert cuda.code("cudaMalloc", byref(out), 1 << 60) == OUT_OF_MEMORY
    assert cuda.code("cudaMalloc", None, 16) == INVALID_VALUE
    assert cuda.code("cudaGetLastError") == INVALID_VALUE


def test_free_memory_is_counted(cuda: Runtime) -> None:
    free, total = c_size_t(), c_size_t()
    cuda.call("cudaMemGetInfo", byref(free), byref(total))
    before = free.value
    address = cuda.made("cudaMalloc", 64 << 20)
    cuda.call("cudaMemGetInfo", byref(free), byref(total))
    assert before - free.value >= 64 << 20
    assert total.value >= before
    cuda.call("cudaFree", address)


def test_copies_between_devices_and_kinds(cuda: Runtime) -> None:
    values = np.arange(64, dtype=np.uint32)
    first, second = cuda.alloc(values), cuda.alloc(np.zeros(64, np.uint32))
    cuda.call("cudaMemcpy", second + 4, first, 252, c_int(DEVICE_TO_DEVICE))
    np.testing.assert_array_equal(cuda.read(second, 64), [0, *range(63)])
    cuda.call("cudaMemcpyAsync", second, first, 256, c_int(COPY_DEFAULT), 0)
    np.testing.assert_array_equal(cuda.read(second, 64), values)
    copy = np.zeros(64, np.uint32)
    cuda.call("cudaMemcpy", copy.ctypes.data, values.ctypes.data, 256, c_int(HOST_TO_HOST))
    np.testing.assert_array_equal(copy, values)
    assert cuda.code("cudaMemcpy", second, first, 4, c_int(9)) == INVALID_DIRECTION


def test_overlapping_and_empty_copies(cuda: Runtime) -> None:
    address = cuda.alloc(np.zeros(4, np.uint32))
    cuda.call("cudaMemcpy", address, address, 0, c_int(DEVICE_TO_DEVICE))
    cuda.call("cudaMemset", address, c_int(1), 0)
    assert cuda.code("cudaMemcpy", 0, address, 4, c_int(DEVICE_TO_HOST)) == INVALID_VALUE


def test_copies_of_rows(cuda: Runtime) -> None:
    pitch = c_size_t()
    address = cuda.made("cudaMallocPitch", byref(pitch), c_size_t(20), c_size_t(4))
    assert pitch.value >= 20
    assert pitch.value % 256 == 0
    source = np.arange(4 * 8, dtype=np.uint32).reshape(4, 8)
    target = np.zeros((4, 6), np.uint32)
    cuda.call("cudaMemcpy2D", address, pitch, source.ctypes.data, c_size_t(32), c_size_t(20), c_size_t(4), c_int(HOST_TO_DEVICE))
    cuda.call("cudaMemcpy2D", target.ctypes.data, c_size_t(24), address, pitch, c_size_t(20), c_size_t(4), c_int(DEVICE_TO_HOST))
    np.testing.assert_array_equal(target[:, :5], source[:, :5])
    np.testing.assert_array_equal(target[:, 5], 0)
    cuda.call("cudaMemset2D", address, pitch, c_int(0xAB), c_size_t(4), c_size_t(2))
    cuda.call("cudaMemcpy2D", target.ctypes.data, c_size_t(24), address, pitch, c_size_t(20), c_size_t(4), c_int(DEVICE_TO_HOST))
    np.testing.assert_array_equal(target[:2, 0], 0xABABABAB)
    np.testing.assert_array_equal(target[2:, :5], source[2:, :5])
    wrong = (c_size_t(10), address, pitch, c_size_t(20), c_size_t(4), c_int(DEVICE_TO_HOST))
    assert cuda.code("cudaMemcpy2D", target.ctypes.data, *wrong) == INVALID_PITCH


def test_fills(cuda: Runtime) -> None:
    address = cuda.alloc(np.zeros(4, np.uint32))
    cuda.call("cudaMemset", address, c_int(0x1FF), 8)
    assert list(cuda.read(address, 4)) == [0xFFFFFFFF, 0xFFFFFFFF, 0, 0]
    cuda.call("cudaMemsetAsync", address + 4, c_int(0), 4, 0)
    assert list(cuda.read(address, 4)) == [0xFFFFFFFF, 0, 0, 0]


def test_volumes_are_filled(cuda: Runtime) -> None:
    pitched = PitchedPtr()
    cuda.call("cudaMalloc3D", byref(pitched), Extent(4, 3, 2))
    cuda.call("cudaMemset3D", pitched, c_int(7), Extent(4, 3, 2))
    for row in range(6):
        assert cuda.read(pitched.ptr + row * pitched.pitch)[0] == 0x07070707


def test_pinned_memory_is_host_memory(cuda: Runtime) -> None:
    address = cuda.made("cudaMallocHost", 4096)
    view = (ctypes.c_uint32 * 1024).from_address(address)
    view[3] = 42
    device = cuda.alloc(np.zeros(1024, np.uint32))
    cuda.call("cudaMemcpy", device, address, 4096, c_int(HOST_TO_DEVICE))
    assert cuda.read(device, 4)[3] == 42
    view[3] = 0
    cuda.call("cudaMemcpy", address, device, 4096, c_int(DEVICE_TO_HOST))
    assert view[3] == 42
    found = attributes_of(cuda, address)
    assert (found.type, found.host_pointer) == (1, address)
    mapped = cuda.made("cudaHostGetDevicePointer", address, c_uint(0))
    assert mapped == address
    cuda.call("cudaFreeHost", address)


def test_managed_memory_is_for_both(cuda: Runtime) -> None:
    address = cuda.made("cudaMallocManaged", 4096, c_uint(1))
    (ctypes.c_uint32 * 4).from_address(address)[1] = 9
    cuda.call("cudaDeviceSynchronize")
    assert cuda.read(address, 2)[1] == 9
    assert attributes_of(cuda, address).type == 3
    cuda.call("cudaFree", address)


def test_pointers_are_known(cuda: Runtime) -> None:
    address = cuda.alloc(np.zeros(4, np.uint32))
    found = attributes_of(cuda, address + 8)
    assert (found.type, found.device, found.device_pointer, found.host_pointer) == (2, 0, address + 8, None)
    cuda.call("cudaFree", address)
    assert attributes_of(cuda, address).type == 0
    host = np.zeros(4)
    assert attributes_of(cuda, host.ctypes.data).type == 0
    cuda.call("cudaHostRegister", host.ctypes.data, host.nbytes, c_uint(0))
    assert attributes_of(cuda, host.ctypes.data).type == 1
    assert cuda.code("cudaHostRegister", host.ctypes.data, host.nbytes, c_uint(0)) == 712
    cuda.call("cudaHostUnregister", host.ctypes.data)
    assert cuda.code("cudaHostUnregister", host.ctypes.data) == 713


def test_stream_ordered_memory(cuda: Runtime) -> None:
    stream = cuda.stream()
    address = cuda.made("cudaMallocAsync", 64, stream)
    cuda.call("cudaMemsetAsync", address, c_int(1), 64, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert cuda.read(address)[0] == 0x01010101
    cuda.call("cudaFreeAsync", address, stream)
    pool = cuda.made("cudaDeviceGetDefaultMemPool", c_int(0))
    address = cuda.made("cudaMallocFromPoolAsync", 64, pool, stream)
    cuda.call("cudaFreeAsync", address, stream)
    threshold = ctypes.c_uint64(123)
    cuda.call("cudaMemPoolSetAttribute", pool, c_int(4), byref(threshold))
    threshold.value = 0
    cuda.call("cudaMemPoolGetAttribute", pool, c_int(4), byref(threshold))
    assert threshold.value == 123
    cuda.call("cudaStreamDestroy", stream)


@pytest.mark.parametrize("direction", ["read", "write", "fill"])
def test_a_copy_out_of_bounds_is_an_error_and_a_report(emulator: Runtime, direction: str) -> None:
    address, host = emulator.alloc(np.zeros(4, np.uint32)), np.zeros(16, np.uint32)
    if direction == "read":
        code = emulator.code("cudaMemcpy", host.ctypes.data, address, 17, c_int(DEVICE_TO_HOST))
    elif direction == "write":
        code = emulator.code("cudaMemcpy", address + 8, host.ctypes.data, 12, c_int(HOST_TO_DEVICE))
    else:
        code = emulator.code("cudaMemset", address, c_int(0), 17)
    assert code == INVALID_VALUE
    (report,) = emulator.reports()
    assert report["kind"] == "host_copy_out_of_bounds"
    assert "of 16 bytes" in report["text"]
    assert report["address"] in (address, address + 8)
    emulator.call("cudaFree", address)


def test_wrong_kinds_are_explained(emulator: Runtime) -> None:
    address, host = emulator.alloc(np.zeros(4, np.uint32)), np.zeros(4, np.uint32)
    assert emulator.code("cudaMemcpy", host.ctypes.data, address, 16, c_int(HOST_TO_DEVICE)) == INVALID_VALUE
    assert "is a device address, and the copy kind says the opposite" in emulator.message()


def test_wrong_frees_are_reported(emulator: Runtime) -> None:
    address = emulator.alloc(np.zeros(4, np.uint32))
    assert emulator.code("cudaFree", address + 4) == INVALID_VALUE
    assert emulator.code("cudaFreeHost", address) == INVALID_VALUE
    emulator.call("cudaFree", address)
    assert emulator.code("cudaFree", address) == INVALID_VALUE
    assert emulator.code("cudaFree", 0x1000) == INVALID_VALUE
    host = np.zeros(4, np.uint32)
    assert emulator.code("cudaMemcpy", host.ctypes.data, address, 16, c_int(DEVICE_TO_HOST)) == INVALID_VALUE
    kinds = [r["kind"] for r in emulator.reports()]
    assert kinds == ["invalid_free", "invalid_free", "double_free", "invalid_free", "host_copy_after_free"]


def test_reading_what_nothing_wrote_is_a_warning(emulator: Runtime) -> None:
    emulator.set_option("checks", "none")
    first, second = emulator.made("cudaMalloc", 64), emulator.made("cudaMalloc", 64)
    emulator.call("cudaMemset", first, c_int(0), 32)
    emulator.call("cudaMemcpy", second, first + 16, 32, c_int(DEVICE_TO_DEVICE))
    emulator.read(second, 8)
    assert emulator.reports() == []
    emulator.set_option("checks", "initcheck")
    try:
        emulator.read(second, 4)
        assert emulator.reports() == []
        emulator.read(second, 8)
        (report,) = emulator.reports()
    finally:
        emulator.set_option("checks", "none")
    assert (report["kind"], report["severity"], report["address"]) == ("host_read_uninitialized", "warning", second + 16)


def test_live_allocations_are_listed(emulator: Runtime) -> None:
    address = emulator.alloc(np.zeros(5, np.uint32))
    found = [a for a in json.loads(emulator.library.aicfEmulatorAllocations()) if a["address"] == address]
    assert [(a["size_bytes"], a["kind"]) for a in found] == [(20, "device")]
    emulator.call("cudaFree", address)
    assert address not in [a["address"] for a in json.loads(emulator.library.aicfEmulatorAllocations())]


def test_host_code_that_dereferences_a_device_address_is_told_so(emulator: Runtime, runtime_library: Path) -> None:
    done = run_isolated(
        runtime_library, "p = cuda.alloc(np.zeros(4, np.uint32))\nprint(hex(p + 4), flush=True)\nctypes.c_uint32.from_address(p + 4).value"
    )
    assert done.returncode == -11
    address = done.stdout.strip()
    assert f"host code dereferenced device address {address}, which is 4 bytes into allocation #1 of 16 bytes" in done.stderr


def test_memory_is_set_before_the_first_allocation(emulator: Runtime, runtime_library: Path) -> None:
    body = (
        "assert cuda.set_option('memory_bytes', 64 << 20) == 0\n"
        "print(cuda.code('cudaMalloc', byref(c_void_p()), 65 << 20), cuda.code('cudaMalloc', byref(c_void_p()), 32 << 20))\n"
        "print(cuda.set_option('memory_bytes', 128 << 20), cuda.message())\n"
    )
    done = run_isolated(runtime_library, body)
    first, second = done.stdout.splitlines()
    assert first == "2 0"
    assert second.startswith("1 ")
    assert "before the first allocation" in second
