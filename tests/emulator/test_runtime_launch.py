"""Launches: limits, attributes, occupancy, errors of the launch and of the kernel. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path

import pytest

from .cuda_runtime import Args, Dim3, Runtime, run_isolated

INVALID_VALUE, INVALID_HANDLE, SYMBOL_NOT_FOUND = 1, 400, 500
COOPERATIVE_TOO_LARGE, INVALID_PTX, INVALID_CLUSTER = 720, 218, 912
OPTIN_BYTES = 227 * 1024
MAX_DYNAMIC_SHARED = 8


class FuncAttributes(ctypes.Structure):
    _fields_ = (
        ("shared", c_size_t),
        ("const", c_size_t),
        ("local", c_size_t),
        ("max_threads", c_int),
        ("registers", c_int),
        ("ptx_version", c_int),
        ("binary_version", c_int),
        ("cache_mode", c_int),
        ("max_dynamic_shared", c_int),
        ("carveout", c_int),
        ("rest", c_int * 22),
    )


@pytest.mark.parametrize(
    ("grid", "block", "shared", "expected"),
    [
        ((0, 1, 1), (1, 1, 1), 0, INVALID_VALUE),
        ((1, 1, 1), (0, 1, 1), 0, INVALID_VALUE),
        ((1, 65536, 1), (1, 1, 1), 0, INVALID_VALUE),
        ((1, 1, 65536), (1, 1, 1), 0, INVALID_VALUE),
        ((1, 1, 1), (1025, 1, 1), 0, INVALID_VALUE),
        ((1, 1, 1), (1, 1, 65), 0, INVALID_VALUE),
        ((1, 1, 1), (32, 33, 1), 0, INVALID_VALUE),
        ((1, 1, 1), (1, 1, 1), 48 * 1024 + 1, INVALID_VALUE),
        ((1, 1, 1), (1024, 1, 1), 48 * 1024, 0),
    ],
)
def test_launch_limits(
    cuda: Runtime, ptx_library: int, word: int, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, expected: int
) -> None:
    kernel = cuda.kernel(ptx_library, "put")
    assert cuda.launch(kernel, Args(c_uint64(word), c_uint32(1)), 0, grid, block, shared) == expected
    assert cuda.code("cudaGetLastError") == expected
    assert cuda.code("cudaGetLastError") == 0
    cuda.call("cudaDeviceSynchronize")


def test_bounds_of_the_kernel(cuda: Runtime, ptx_library: int) -> None:
    bounded, exact = cuda.kernel(ptx_library, "bounded"), cuda.kernel(ptx_library, "exact")
    assert cuda.launch(bounded, Args(), block=(64, 1, 1)) == 0
    assert cuda.launch(exact, Args(), block=(32, 2, 1)) == 0
    codes = (cuda.launch(bounded, Args(), block=(65, 1, 1)), cuda.launch(exact, Args(), block=(32, 1, 1)))
    assert codes == (INVALID_VALUE, INVALID_VALUE)


def test_dynamic_shared_memory_is_opted_into(cuda: Runtime, ptx_library: int, word: int) -> None:
    kernel = cuda.kernel(ptx_library, "put")
    args = Args(c_uint64(word), c_uint32(1))
    assert cuda.launch(kernel, args, shared=100_000) == INVALID_VALUE
    cuda.call("cudaFuncSetAttribute", kernel, c_int(MAX_DYNAMIC_SHARED), c_int(OPTIN_BYTES))
    assert cuda.launch(kernel, args, shared=OPTIN_BYTES) == 0
    assert cuda.launch(kernel, args, shared=OPTIN_BYTES + 1) == INVALID_VALUE
    cuda.call("cudaFuncSetAttribute", kernel, c_int(MAX_DYNAMIC_SHARED), c_int(49152))
    with_static = cuda.kernel(ptx_library, "with_shared")
    assert cuda.code("cudaFuncSetAttribute", with_static, c_int(MAX_DYNAMIC_SHARED), c_int(OPTIN_BYTES)) == INVALID_VALUE
    cuda.call("cudaFuncSetAttribute", with_static, c_int(MAX_DYNAMIC_SHARED), c_int(OPTIN_BYTES - 1024))
    assert cuda.code("cudaFuncSetAttribute", kernel, c_int(MAX_DYNAMIC_SHARED), c_int(OPTIN_BYTES + 1)) == INVALID_VALUE
    assert cuda.code("cudaFuncSetAttribute", kernel, c_int(99), c_int(1)) == INVALID_VALUE


def test_function_attributes(cuda: Runtime, ptx_library: int) -> None:
    attributes = FuncAttributes()
    cuda.call("cudaFuncGetAttributes", byref(attributes), cuda.kernel(ptx_library, "with_shared"))
    assert attributes.shared == 1024
    assert attributes.max_threads == 1024
    assert attributes.ptx_version == 80
    assert 1 <= attributes.registers <= 32
    assert attributes.max_dynamic_shared in (OPTIN_BYTES - 1024, 49152 - 1024)
    cuda.call("cudaFuncGetAttributes", byref(attributes), cuda.kernel(ptx_library, "bounded"))
    assert attributes.max_threads == 64


def test_names_and_parameters(cuda: Runtime, ptx_library: int) -> None:
    kernel = cuda.kernel(ptx_library, "put")
    name, offset, size = c_char_p(), c_size_t(), c_size_t()
    cuda.call("cudaFuncGetName", byref(name), kernel)
    assert name.value == b"put"
    cuda.call("cudaFuncGetParamInfo", kernel, c_size_t(1), byref(offset), byref(size))
    assert (offset.value, size.value) == (8, 4)
    assert cuda.code("cudaFuncGetParamInfo", kernel, c_size_t(2), byref(offset), byref(size)) == INVALID_VALUE


@pytest.mark.parametrize(("block", "shared", "blocks"), [(32, 0, 32), (256, 0, 8), (1024, 0, 2), (128, 100_000, 2), (128, 48 * 1024, 4)])
def test_occupancy(cuda: Runtime, ptx_library: int, block: int, shared: int, blocks: int) -> None:
    kernel, out = cuda.kernel(ptx_library, "put"), c_int()
    cuda.call("cudaFuncSetAttribute", kernel, c_int(MAX_DYNAMIC_SHARED), c_int(OPTIN_BYTES))
    cuda.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", byref(out), kernel, c_int(block), c_size_t(shared))
    assert out.value == blocks
    cuda.call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", byref(out), kernel, c_int(block), c_size_t(shared), c_uint(0))
    assert out.value == blocks


@pytest.mark.parametrize(("blocks", "threads", "expected"), [(1, 128, 232448), (2, 128, 116736), (4, 128, 58368), (32, 32, 7296)])
def test_dynamic_shared_memory_for_an_occupancy(cuda: Runtime, ptx_library: int, blocks: int, threads: int, expected: int) -> None:
    out = c_size_t()
    cuda.call("cudaOccupancyAvailableDynamicSMemPerBlock", byref(out), cuda.kernel(ptx_library, "put"), c_int(blocks), c_int(threads))
    assert out.value == expected


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", Dim3),
        ("block", Dim3),
        ("shared", c_size_t),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", c_uint),
    )


@pytest.mark.parametrize(
    ("grid", "cluster", "expected"), [(4, 2, 0), (3, 2, INVALID_CLUSTER), (16, 16, INVALID_CLUSTER), (4, 0, INVALID_CLUSTER), (8, 8, 0)]
)
def test_clusters(cuda: Runtime, ptx_library: int, grid: int, cluster: int, expected: int) -> None:
    attribute = LaunchAttribute(4, 0, (c_uint * 16)(cluster, 1, 1))
    config = LaunchConfig(Dim3(grid, 1, 1), Dim3(32, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    assert cuda.code("cudaLaunchKernelExC", byref(config), cuda.kernel(ptx_library, "bounded"), Args().array) == expected
    cuda.call("cudaDeviceSynchronize")


def test_a_cooperative_grid_must_fit(cuda: Runtime, ptx_library: int, word: int) -> None:
    kernel, args = cuda.kernel(ptx_library, "put"), Args(c_uint64(word), c_uint32(1))
    call = (Dim3(1024, 1, 1), args.array, c_size_t(0), 0)
    assert cuda.code("cudaLaunchCooperativeKernel", kernel, Dim3(264, 1, 1), *call) == 0
    assert cuda.code("cudaLaunchCooperativeKernel", kernel, Dim3(265, 1, 1), *call) == COOPERATIVE_TOO_LARGE
    cuda.call("cudaDeviceSynchronize")


def test_unknown_kernels(cuda: Runtime, ptx_library: int) -> None:
    assert cuda.code("cudaLibraryGetKernel", byref(c_void_p()), ptx_library, c_char_p(b"nothing")) == SYMBOL_NOT_FOUND


def test_unknown_handles_are_refused(emulator: Runtime, ptx_library: int) -> None:
    assert emulator.launch(0x1234, Args()) == INVALID_HANDLE
    assert "no registered kernel" in emulator.message()
    assert emulator.code("cudaStreamSynchronize", 0x1234) == 400
    kernel = emulator.kernel(ptx_library, "put")
    assert emulator.launch(kernel, Args(c_uint64(0), c_uint32(0)), 0x1234) == 400
    assert emulator.code("cudaLaunchKernel", kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), None, c_size_t(0), 0) == INVALID_VALUE
    assert "argument 0 is missing" in emulator.message()


def test_library_variables(cuda: Runtime, ptx_library: int) -> None:
    address, size = c_void_p(), c_size_t()
    cuda.call("cudaLibraryGetGlobal", byref(address), byref(size), ptx_library, c_char_p(b"counter"))
    assert size.value == 4
    assert cuda.read(address.value or 0)[0] == 7
    cuda.call("cudaLibraryGetGlobal", byref(address), byref(size), ptx_library, c_char_p(b"table"))
    assert size.value == 16
    assert list(cuda.read(address.value or 0, 4)) == [1, 2, 3, 4]


def test_damaged_ptx_is_refused_with_its_line(emulator: Runtime) -> None:
    text = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { this is not ptx; ret; }\n"
    code = emulator.code("cudaLibraryLoadData", byref(c_void_p()), c_char_p(text), None, None, c_uint(0), None, None, c_uint(0))
    assert code == INVALID_PTX
    assert "4" in emulator.message()
    assert [r["kind"] for r in emulator.reports()] == ["load_error"]


BAD_STORE = """
library = cuda.load(PTX)
kernel = cuda.kernel(library, "put")
codes = [cuda.launch(kernel, Args(ctypes.c_uint64(0x10), ctypes.c_uint32(1)))]
codes.append(cuda.code("cudaDeviceSynchronize"))
codes.append(cuda.code("cudaMalloc", byref(c_void_p()), 16))
codes += [cuda.code("cudaGetLastError"), cuda.code("cudaGetLastError"), cuda.code("cudaPeekAtLastError")]
print(codes)
"""


def test_an_illegal_address_ends_the_context(runtime_library: Path) -> None:
    done = run_isolated(runtime_library, BAD_STORE)
    assert done.stdout.strip() == "[0, 700, 700, 700, 0, 0]", done.stderr


def test_a_reset_gives_a_new_context(runtime_library: Path, emulator: Runtime) -> None:
    body = BAD_STORE + (
        "cuda.call('cudaDeviceReset')\nword = cuda.alloc(np.zeros(1, np.uint32))\n"
        "kernel = cuda.kernel(library, 'put')\n"
        "print(cuda.launch(kernel, Args(ctypes.c_uint64(word), ctypes.c_uint32(5))), cuda.read(word)[0])\n"
    )
    done = run_isolated(runtime_library, body)
    assert done.stdout.splitlines()[-1] == "0 5", done.stderr


def test_the_message_and_the_report_of_a_bad_store(runtime_library: Path, emulator: Runtime) -> None:
    done = run_isolated(runtime_library, BAD_STORE + "print(cuda.message())\nprint([r['kind'] for r in cuda.reports()])\n")
    assert "kernel put" in done.stdout, done.stderr
    assert "0x10" in done.stdout
    assert "out_of_bounds_write" in done.stdout


def test_the_error_can_be_cleared_without_a_reset(runtime_library: Path, emulator: Runtime) -> None:
    body = BAD_STORE + "print(cuda.library.aicfEmulatorClearError(), cuda.code('cudaDeviceSynchronize'), cuda.code('cudaGetLastError'))\n"
    done = run_isolated(runtime_library, body)
    assert done.stdout.splitlines()[-1] == "700 0 0", done.stderr


def test_host_threads_work_side_by_side(cuda: Runtime, ptx_library: int) -> None:
    kernel = cuda.kernel(ptx_library, "put")
    wrong: list[object] = []

    def work(number: int) -> None:
        for step in range(50):
            address, stream, value = cuda.made("cudaMalloc", 256), cuda.stream(), number * 1000 + step
            code = cuda.launch(kernel, Args(c_uint64(address), c_uint32(value)), stream)
            cuda.call("cudaStreamSynchronize", stream)
            found = int(cuda.read(address)[0])
            if (code, found) != (0, value):
                wrong.append((number, step, code, found))
            cuda.call("cudaFree", address)
            cuda.call("cudaStreamDestroy", stream)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_event_of_the_launch_itself(cuda: Runtime, ptx_library: int, word: int) -> None:
    completion_event, stream, event = 12, cuda.stream(), cuda.event()
    attribute = LaunchAttribute(completion_event)
    attribute.value[0], attribute.value[1] = event & 0xFFFFFFFF, event >> 32
    config = LaunchConfig(Dim3(1, 1, 1), Dim3(1, 1, 1), 0, stream, ctypes.pointer(attribute), 1)
    args = Args(c_uint64(word), c_uint32(5))
    cuda.call("cudaLaunchKernelExC", byref(config), cuda.kernel(ptx_library, "put"), args.array)
    cuda.call("cudaEventSynchronize", event)
    cuda.call("cudaStreamSynchronize", stream)
    assert cuda.read(word)[0] == 5
    attribute.value[0], attribute.value[1] = 0x1234, 0
    if cuda.is_emulated:  # a GPU's runtime takes the handle for what it is said to be
        assert cuda.code("cudaLaunchKernelExC", byref(config), cuda.kernel(ptx_library, "put"), args.array) == 400
