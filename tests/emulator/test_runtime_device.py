"""Devices, attributes, versions, errors, limits, streams and events. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pytest

from device.loader import find_cuda_library
from device.settings import EMULATOR_OPTIONS

from .cuda_runtime import COUNTS, LEGACY_STREAM, PER_THREAD_STREAM, ROOT, Args, Dim3, Runtime, run_isolated

INVALID_DEVICE, INVALID_HANDLE, NOT_PERMITTED, NOT_SUPPORTED = 101, 400, 800, 801
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)
StreamCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)

# Read from an H200 (driver 580, CUDA 13.0): cudaDeviceAttr number -> value, those that launch code reads.
H200_ATTRIBUTES = {
    1: 1024,
    2: 1024,
    4: 64,
    5: 2147483647,
    6: 65535,
    8: 49152,
    9: 65536,
    10: 32,
    12: 65536,
    13: 1980000,
    16: 132,
    38: 62914560,
    39: 2048,
    75: 9,
    76: 0,
    81: 233472,
    82: 65536,
    95: 1,
    97: 232448,
    106: 32,
    111: 1024,
    115: 1,
    120: 1,
}


@pytest.fixture
def stream(cuda: Runtime) -> Iterator[int]:
    handle = cuda.stream()
    yield handle
    cuda.code("cudaStreamDestroy", handle)


def attribute(cuda: Runtime, number: int) -> int:
    out = c_int()
    cuda.call("cudaDeviceGetAttribute", byref(out), c_int(number), c_int(0))
    return out.value


def test_there_is_one_device(emulator: Runtime) -> None:
    count, device = c_int(), c_int(9)
    emulator.call("cudaGetDeviceCount", byref(count))
    emulator.call("cudaGetDevice", byref(device))
    assert (count.value, device.value) == (1, 0)
    emulator.call("cudaSetDevice", c_int(0))
    assert emulator.code("cudaSetDevice", c_int(1)) == INVALID_DEVICE


def read_name(cuda: Runtime) -> str:
    properties = ctypes.create_string_buffer(2048)
    cuda.call("cudaGetDeviceProperties", properties, c_int(0))
    return properties.value.decode()


def test_attributes_are_the_h200s(cuda: Runtime) -> None:
    if not cuda.is_emulated and "H200" not in read_name(cuda):
        pytest.skip(f"they are another GPU's here: {read_name(cuda)}")
    assert {number: attribute(cuda, number) for number in H200_ATTRIBUTES} == H200_ATTRIBUTES
    assert cuda.code("cudaDeviceGetAttribute", byref(c_int()), c_int(9999), c_int(0)) == 1
    assert cuda.code("cudaDeviceGetAttribute", byref(c_int()), c_int(1), c_int(77)) == INVALID_DEVICE


def test_the_name_says_that_it_is_emulated(emulator: Runtime) -> None:
    assert "Emulated" in read_name(emulator)


def test_versions(cuda: Runtime) -> None:
    version = c_int()
    cuda.call("cudaRuntimeGetVersion", byref(version))
    assert version.value // 1000 == 13
    cuda.call("cudaDriverGetVersion", byref(version))
    assert version.value // 1000 >= 13


@pytest.mark.parametrize("target", ["h200", "h100", "a100"])
def test_targets(emulator: Runtime, target: str) -> None:
    assert emulator.set_option("target", target) == 0
    try:
        assert (attribute(emulator, 75), attribute(emulator, 16)) == {"h200": (9, 132), "h100": (9, 132), "a100": (8, 108)}[target]
    finally:
        emulator.set_option("target", "h200")


def test_error_names_are_the_real_librarys(emulator: Runtime) -> None:
    real_path = find_cuda_library()
    assert real_path is not None, "nvidia-cuda-runtime is a dependency of the project"
    body = "print([(cuda.library.cudaGetErrorName(i).decode(), i) for i in range(1100)])"
    ours, real = (run_isolated(path, body).stdout for path in (emulator.path, real_path))
    assert len(real) > 1000
    assert ours == real


def test_every_error_has_a_text(emulator: Runtime) -> None:
    for code in range(1000):
        name, text = emulator.library.cudaGetErrorName(code).decode(), emulator.library.cudaGetErrorString(code).decode()
        assert (name == "unrecognized error code") == (text == "unrecognized error code")


def test_errors_are_kept_per_thread(cuda: Runtime) -> None:
    assert cuda.code("cudaSetDevice", c_int(77)) == INVALID_DEVICE
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(cuda.code("cudaGetLastError")))
    thread.start()
    thread.join()
    assert seen == [0]
    assert cuda.code("cudaPeekAtLastError") == INVALID_DEVICE
    assert cuda.code("cudaGetLastError") == INVALID_DEVICE
    assert cuda.code("cudaGetLastError") == 0


def test_limits(cuda: Runtime) -> None:
    """In a process of its own: once a kernel that can print was loaded, its buffer has the size that it has."""
    body = """
value = c_size_t()
cuda.call("cudaDeviceSetLimit", c_int(1), c_size_t(2 << 20))
cuda.call("cudaDeviceGetLimit", byref(value), c_int(1))
assert value.value >= 2 << 20, value
assert cuda.code("cudaDeviceGetLimit", byref(value), c_int(99)) != 0
"""
    done = run_isolated(cuda.path, body)
    assert done.returncode == 0, done.stderr


def test_preferences_are_accepted(cuda: Runtime) -> None:
    cuda.call("cudaDeviceSetCacheConfig", c_int(1))
    cuda.call("cudaDeviceSetCacheConfig", c_int(0))
    cuda.call("cudaCtxResetPersistingL2Cache")


@pytest.mark.parametrize(("name", "is_there"), [(b"cuTensorMapEncodeTiled", True), (b"cuGetErrorName", True), (b"cuNoSuchFunction", False)])
def test_driver_entry_points(emulator: Runtime, name: bytes, is_there: bool) -> None:
    function, found = c_void_p(1), c_int(-1)
    emulator.call("cudaGetDriverEntryPointByVersion", c_char_p(name), byref(function), c_uint(12000), c_ulonglong(0), byref(found))
    assert (function.value is not None, found.value) == (is_there, 0 if is_there else 1)


# Whether a function, as a thread's first, makes the device's context current there; recorded on an H200 (driver 580, CUDA 13.0).
FIRST_CALLS = {
    "cudaGetDevice": False,
    "cudaGetDeviceCount": False,
    "cudaDeviceGetAttribute": False,
    "cudaGetDeviceProperties": False,
    "cudaDriverGetVersion": False,
    "cudaRuntimeGetVersion": False,
    "cudaGetLastError": False,
    "cudaSetDevice": True,
    "cudaFree": True,
    "cudaMalloc": True,
    "cudaMemGetInfo": True,
    "cudaDeviceSynchronize": True,
    "cudaStreamCreate": True,
    "cudaStreamQuery": True,
    "cudaStreamIsCapturing": True,
    "cudaEventCreate": True,
}


def call_first(cuda: Runtime, name: str) -> None:
    """Call one of ``FIRST_CALLS`` with arguments that are right."""
    word, space = c_int(), ctypes.create_string_buffer(4096)
    out = c_void_p()
    arguments: dict[str, tuple[object, ...]] = {
        "cudaDeviceGetAttribute": (byref(word), c_int(16), c_int(0)),
        "cudaGetDeviceProperties": (space, c_int(0)),
        "cudaGetLastError": (),
        "cudaSetDevice": (c_int(0),),
        "cudaFree": (None,),
        "cudaMalloc": (byref(out), c_size_t(16)),
        "cudaMemGetInfo": (byref(c_size_t()), byref(c_size_t())),
        "cudaDeviceSynchronize": (),
        "cudaStreamCreate": (byref(out),),
        "cudaStreamQuery": (None,),
        "cudaStreamIsCapturing": (None, byref(word)),
        "cudaEventCreate": (byref(out),),
    }
    cuda.call(name, *arguments.get(name, (byref(word),)))
    freeing = {"cudaMalloc": "cudaFree", "cudaStreamCreate": "cudaStreamDestroy", "cudaEventCreate": "cudaEventDestroy"}
    if name in freeing:
        cuda.call(freeing[name], out)


def find_entry(cuda: Runtime, name: bytes) -> Callable[..., int]:
    """Return a driver function, which is looked up without making a context current."""
    function, found = c_void_p(), c_int(-1)
    cuda.call("cudaGetDriverEntryPointByVersion", c_char_p(name), byref(function), c_uint(12000), c_ulonglong(0), byref(found))
    assert function.value is not None
    return ctypes.CFUNCTYPE(c_int, c_void_p)(function.value)


def run_in_thread(body: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(body).result()


@pytest.mark.parametrize("name", list(FIRST_CALLS))
def test_a_threads_first_call_makes_the_context_current_where_it_needs_one(cuda: Runtime, name: str) -> None:
    seen: list[bool] = []

    def look() -> None:
        current = c_void_p()
        get_current = find_entry(cuda, b"cuCtxGetCurrent")
        for _ in range(2):
            assert get_current(ctypes.addressof(current)) == 0
            seen.append(current.value is not None)
            call_first(cuda, name)
        assert get_current(ctypes.addressof(current)) == 0
        seen.append(current.value is not None)

    cuda.call("cudaFree", None)
    run_in_thread(look)
    assert seen == [False, FIRST_CALLS[name], FIRST_CALLS[name]]


def test_a_context_that_is_taken_away_is_not_current(cuda: Runtime) -> None:
    def look() -> None:
        current, popped = c_void_p(), c_void_p()
        get_current, set_current = find_entry(cuda, b"cuCtxGetCurrent"), find_entry(cuda, b"cuCtxSetCurrent")
        cuda.call("cudaFree", None)
        assert get_current(ctypes.addressof(current)) == 0 and current.value
        assert set_current(None) == 0
        assert get_current(ctypes.addressof(popped)) == 0 and not popped.value
        push, pop = find_entry(cuda, b"cuCtxPushCurrent"), find_entry(cuda, b"cuCtxPopCurrent")
        assert push(current.value) == 0 and pop(ctypes.addressof(popped)) == 0
        assert popped.value == current.value
        assert get_current(ctypes.addressof(popped)) == 0 and not popped.value

    run_in_thread(look)


def test_what_is_not_implemented_says_so_once(runtime_library: Path, emulator: Runtime) -> None:
    done = run_isolated(
        runtime_library,
        "print(cuda.code('cudaIpcGetMemHandle', 0, 0), cuda.code('cudaIpcGetMemHandle', 0, 0), cuda.code('cudaGetLastError'))",
    )
    assert done.stdout.split() == [str(NOT_SUPPORTED)] * 3
    assert done.stderr.count("cudaIpcGetMemHandle: not implemented by the emulated device") == 1


# Streams and events.


def test_streams_have_their_properties(cuda: Runtime) -> None:
    least, greatest = c_int(), c_int()
    cuda.call("cudaDeviceGetStreamPriorityRange", byref(least), byref(greatest))
    assert least.value == 0 > greatest.value
    handle = cuda.made("cudaStreamCreateWithPriority", c_uint(1), c_int(-1000))
    flags, priority, first, second = c_uint(), c_int(), c_ulonglong(), c_ulonglong()
    cuda.call("cudaStreamGetFlags", handle, byref(flags))
    cuda.call("cudaStreamGetPriority", handle, byref(priority))
    assert (flags.value, priority.value) == (1, greatest.value)
    cuda.call("cudaStreamGetId", handle, byref(first))
    cuda.call("cudaStreamGetId", 0, byref(second))
    assert first.value != second.value
    cuda.call("cudaStreamDestroy", handle)
    assert cuda.code("cudaStreamCreateWithFlags", byref(c_void_p()), c_uint(8)) == 1


@pytest.mark.parametrize("handle", [0, LEGACY_STREAM, PER_THREAD_STREAM])
def test_default_streams(cuda: Runtime, ptx_library: int, word: int, handle: int) -> None:
    assert cuda.launch(cuda.kernel(ptx_library, "put"), Args(c_uint64(word), c_uint32(8)), handle) == 0
    cuda.call("cudaStreamSynchronize", handle)
    assert cuda.code("cudaStreamQuery", handle) == 0
    assert cuda.read(word)[0] == 8


def test_functions_for_the_per_thread_default_stream(cuda: Runtime, ptx_library: int, word: int) -> None:
    args = Args(c_uint64(word), c_uint32(9))
    cuda.call("cudaLaunchKernel_ptsz", cuda.kernel(ptx_library, "put"), Dim3(1, 1, 1), Dim3(1, 1, 1), args.array, c_size_t(0), 0)
    out = np.zeros(1, np.uint32)
    cuda.call("cudaMemcpyAsync_ptsz", out.ctypes.data, word, 4, c_int(2), 0)
    cuda.call("cudaStreamSynchronize_ptsz", 0)
    assert out[0] == 9


def test_events_measure_host_time(cuda: Runtime, stream: int) -> None:
    start, end, elapsed = cuda.made("cudaEventCreate"), cuda.made("cudaEventCreate"), c_float(-1)
    cuda.call("cudaEventRecord", start, stream)
    cuda.call("cudaEventSynchronize", start)
    time.sleep(0.02)
    cuda.call("cudaEventRecord", end, stream)
    cuda.call("cudaEventSynchronize", end)
    cuda.call("cudaEventElapsedTime", byref(elapsed), start, end)
    assert 19 < elapsed.value < 5000
    cuda.call("cudaEventQuery", end)
    for event in (start, end):
        cuda.call("cudaEventDestroy", event)


def test_events_without_a_time(cuda: Runtime, stream: int) -> None:
    timed, untimed, elapsed = cuda.made("cudaEventCreate"), cuda.event(), c_float()
    assert cuda.code("cudaEventQuery", timed) == 0
    assert cuda.code("cudaEventSynchronize", timed) == 0
    assert cuda.code("cudaEventElapsedTime", byref(elapsed), timed, timed) == INVALID_HANDLE
    cuda.call("cudaEventRecord", timed, stream)
    cuda.call("cudaEventRecord", untimed, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert cuda.code("cudaEventElapsedTime", byref(elapsed), timed, untimed) == INVALID_HANDLE


def test_host_functions_run_in_order_and_may_not_call_cuda(cuda: Runtime, stream: int) -> None:
    seen: list[int] = []
    function = HostFunction(lambda data: seen.extend([data or 0, cuda.code("cudaMalloc", byref(c_void_p()), 16)]))
    callback = StreamCallback(lambda handle, status, data: seen.extend([int((handle or 0) == stream), status, data or 0]))
    cuda.call("cudaLaunchHostFunc", stream, function, 5)
    cuda.call("cudaStreamAddCallback", stream, callback, 6, c_uint(0))
    cuda.call("cudaStreamSynchronize", stream)
    assert seen == [5, NOT_PERMITTED, 1, 0, 6]


def test_destroyed_handles_are_refused(emulator: Runtime) -> None:
    handle, event = emulator.stream(), emulator.event()
    emulator.call("cudaStreamDestroy", handle)
    emulator.call("cudaEventDestroy", event)
    assert emulator.code("cudaStreamSynchronize", handle) == INVALID_HANDLE
    assert emulator.code("cudaEventRecord", event, 0) == INVALID_HANDLE
    assert emulator.code("cudaStreamDestroy", 0) == INVALID_HANDLE


# The control interface.


def test_options_are_checked(emulator: Runtime) -> None:
    for name, value, text in (
        ("checks", "memcheck,speed", "speed"),
        ("workers", "many", "whole number"),
        ("schedule", "fast", "random"),
        ("x", "1", "no option"),
    ):
        assert emulator.set_option(name, value) == 1
        assert text in emulator.message()
    emulator.code("cudaGetLastError")
    for name, value in (
        ("checks", "memcheck,racecheck"),
        ("seed", "77"),
        ("schedule", "greedy"),
        ("counters", "1"),
        ("instruction_limit", "5000"),
    ):
        before = emulator.library.aicfEmulatorGetOption(name.encode())
        assert emulator.set_option(name, value) == 0
        assert emulator.library.aicfEmulatorGetOption(name.encode()).decode() == value
        assert emulator.set_option(name, before.decode()) == 0
    assert emulator.library.aicfEmulatorGetOption(b"x") is None


@pytest.mark.parametrize("time", [1, 2])
def test_options_that_a_test_leaves_behind_are_gone(emulator: Runtime, time: int) -> None:
    assert emulator.options()["checks"] == "none" and emulator.options()["seed"] == "0"
    assert emulator.set_option("checks", "all") == emulator.set_option("seed", "7") == 0


def test_defaults_come_from_the_environment(emulator: Runtime, runtime_library: Path) -> None:
    body = "print(*(cuda.library.aicfEmulatorGetOption(n).decode() for n in (b'checks', b'seed', b'workers')))"
    done = run_isolated(runtime_library, body, AICF_EMULATED_CHECKS="initcheck", AICF_EMULATED_SEED="12", AICF_EMULATED_LEVEL="v3")
    assert done.stdout.split() == ["initcheck", "12", "0"] and not done.stderr


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("AICF_EMULATED_WORKERS", "lots", "option workers"),
        ("AICF_EMULATED_CHECKS", "memchek", '"memchek" is not one of memcheck'),
        ("AICF_EMULATED_LEVEL", "v9", '"v9" is not one of v2, v3, v4'),
        ("AICF_EMULATED_SCHEDUL", "random", "there is no such option; options: checks,"),
        ("AICF_EMULATED_checks", "all", "there is no such option"),
        ("AICF_EMULATED_SUPPRESSED", "1", "it is a count"),
    ],
)
def test_a_variable_that_cannot_be_obeyed_refuses_every_call(
    emulator: Runtime, runtime_library: Path, name: str, value: str, reason: str
) -> None:
    body = """
    print(cuda.library.cudaFree(None), cuda.library.cudaGetDeviceCount(byref(c_int())), cuda.library.cudaDeviceSynchronize())
    print(cuda.library.aicfEmulatorSetOption(b"seed", b"1"), cuda.library.aicfEmulatorMessage().decode())
    """
    done = run_isolated(runtime_library, "from ctypes import byref, c_int" + body.replace("\n    ", "\n"), **{name: value})
    calls, setting = done.stdout.splitlines()
    assert calls == "3 3 3", "cudaErrorInitializationError"
    assert setting.startswith(f"3 {name}={value}: ") and reason in setting
    assert done.stderr.count(f"aicf emulator: {name}={value}: ") == 1


def test_the_names_that_python_knows_are_those_of_the_library(emulator: Runtime) -> None:
    names = emulator.library.aicfEmulatorOptionNames().decode().split(",")
    assert sorted(EMULATOR_OPTIONS) == sorted({*names, "level"} - COUNTS)


def test_the_version_names_the_instruction_set(emulator: Runtime) -> None:
    assert re.fullmatch(r"1 x86-64-v[234]", emulator.library.aicfEmulatorVersion().decode())


def test_the_level_that_a_build_finds_is_the_one_that_runs(emulator: Runtime, tmp_path: Path) -> None:
    source, program = ROOT / "device" / "emulator" / "src/exec/launch/host_level.cpp", tmp_path / "host_level"
    subprocess.run(["g++", "-std=c++20", str(source), "-o", str(program)], check=True)
    found = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    runs = emulator.library.aicfEmulatorVersion().decode().rpartition("-")[2]
    assert found in ("v2", "v3", "v4")
    assert runs <= found, "what was built for less runs here too; what was built for more does not"


def test_counters_are_json(emulator: Runtime, ptx_library: int, word: int) -> None:
    emulator.set_option("counters", "1")
    try:
        assert (
            emulator.launch(emulator.kernel(ptx_library, "put"), Args(c_uint64(word), c_uint32(1)), grid=(3, 1, 1), block=(64, 1, 1)) == 0
        )
    finally:
        emulator.set_option("counters", "0")
    (record,) = json.loads(emulator.library.aicfEmulatorTakeCounters())
    assert (record["kernel"], record["grid"], record["block"]) == ("put", [3, 1, 1], [64, 1, 1])
    assert (record["counts"]["blocks"], record["counts"]["warps"]) == (3, 6)
    assert json.loads(emulator.library.aicfEmulatorTakeCounters()) == []


# The library itself.


def exported(path: Path) -> set[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
    return {fields[2] for line in listed.splitlines() if len(fields := line.split()) == 3 and fields[1] in "TW"}


def test_every_symbol_of_the_real_library_is_there_with_its_version(emulator_library: Path) -> None:
    real_path = find_cuda_library()
    assert real_path is not None
    real = exported(real_path)
    assert len(real) > 400
    assert real <= exported(emulator_library)
    listed = (ROOT / "device/emulator/src/runtime/symbols.txt").read_text().split()
    assert real <= {f"{name}@@libcudart.so.13" for name in listed}  # also those that later releases of CUDA 13 brought


def test_nothing_else_is_exported(emulator_library: Path) -> None:
    extra = exported(emulator_library) - {
        f"{n}@@libcudart.so.13" for n in (ROOT / "device/emulator/src/runtime/symbols.txt").read_text().split()
    }
    assert all(name.startswith("aicfEmulator") for name in extra), sorted(extra)


def test_the_library_needs_nothing_of_nvidias_and_no_cpp_runtime(emulator_library: Path) -> None:
    text = subprocess.run(["readelf", "-d", str(emulator_library)], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", text)
    assert re.search(r"SONAME.*\[libcudart\.so\.13\]", text)
    if "libasan" in text:
        pytest.skip("a build that checks itself needs the sanitizers' libraries, and with them the C++ runtime")
    assert all(name.startswith(("libc.", "libm.", "libpthread.", "libdl.", "ld-linux")) for name in needed), needed
