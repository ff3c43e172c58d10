"""Deferred mode: programs that forget to wait go wrong under some seed, and those that wait are right under every one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    RELAXED,
    Args,
    Dim3,
    KernelNodeParams,
    Runtime,
    run_isolated,
)

NOT_READY, ILLEGAL_ADDRESS = 600, 700
SEEDS = range(8)
BLOCKING, NON_BLOCKING = False, True


@pytest.fixture
def deferred(emulator: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    assert emulator.set_option("mode", "deferred") == 0
    yield emulator
    emulator.code("cudaDeviceSynchronize")
    emulator.reports()
    assert emulator.set_option("mode", "eager") == 0
    emulator.set_option("seed", 0)


@pytest.fixture
def pinned(deferred: Runtime) -> Iterator[ctypes.Array[c_uint32]]:
    """Four words of pinned host memory, which are 0."""
    address = deferred.made("cudaMallocHost", 16)
    words = (c_uint32 * 4).from_address(address)
    words[:] = [0] * 4
    yield words
    deferred.code("cudaFreeHost", address)


class Work:
    """Two kernels on words of device memory: ``put`` sets, ``add`` adds."""

    def __init__(self, cuda: Runtime, library: int) -> None:
        self.cuda, self.kernels = cuda, {name: cuda.kernel(library, name) for name in ("put", "add")}

    def __call__(self, name: str, address: int, value: int, stream: int = 0) -> None:
        assert self.cuda.launch(self.kernels[name], Args(c_uint64(address), c_uint32(value)), stream) == 0


@pytest.fixture
def work(deferred: Runtime, ptx_library: int) -> Work:
    return Work(deferred, ptx_library)


def outcomes(cuda: Runtime, scenario: Callable[[], int]) -> set[int]:
    """What a scenario gives, over the seeds."""
    found = set()
    for seed in SEEDS:
        assert cuda.set_option("seed", seed) == 0
        found.add(int(scenario()))
        cuda.call("cudaDeviceSynchronize")
    return found


def address_of(words: ctypes.Array[c_uint32]) -> int:
    return ctypes.addressof(words)


# ---- The host ----


@pytest.mark.parametrize("waits", [False, True])
def test_the_host_reads_what_a_copy_brings(deferred: Runtime, work: Work, word: int, pinned: ctypes.Array[c_uint32], waits: bool) -> None:
    stream = deferred.stream()

    def scenario() -> int:
        pinned[0] = 0
        work("put", word, 7, stream)
        deferred.call("cudaMemcpyAsync", address_of(pinned), word, 4, c_int(DEVICE_TO_HOST), stream)
        if waits:
            deferred.call("cudaStreamSynchronize", stream)
        return pinned[0]

    assert outcomes(deferred, scenario) == ({7} if waits else {0})


@pytest.mark.parametrize("waits", [False, True])
def test_the_host_overwrites_the_source_of_a_copy(deferred: Runtime, word: int, pinned: ctypes.Array[c_uint32], waits: bool) -> None:
    stream = deferred.stream()

    def scenario() -> int:
        pinned[0] = 5
        deferred.call("cudaMemcpyAsync", word, address_of(pinned), 4, c_int(HOST_TO_DEVICE), stream)
        if waits:
            deferred.call("cudaStreamSynchronize", stream)
        pinned[0] = 9
        deferred.call("cudaStreamSynchronize", stream)
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == ({5} if waits else {9})


def test_pageable_memory_is_staged_and_waited_for(deferred: Runtime, work: Work, word: int) -> None:
    stream, values = deferred.stream(), np.array([5], np.uint32)
    rows = np.arange(12, dtype=np.uint32).reshape(3, 4)
    square = deferred.alloc(np.zeros((3, 2), np.uint32))

    def scenario() -> int:
        values[0], rows[:] = 5, np.arange(12).reshape(3, 4)
        deferred.call("cudaMemcpyAsync", word, values.ctypes.data, 4, c_int(HOST_TO_DEVICE), stream)
        sizes = (c_size_t(8), rows.ctypes.data + 4, c_size_t(16), c_size_t(8), c_size_t(3))
        deferred.call("cudaMemcpy2DAsync", square, *sizes, c_int(HOST_TO_DEVICE), stream)
        values[0], rows[:] = 9, 0
        work("add", word, 1, stream)
        deferred.call("cudaMemcpyAsync", values.ctypes.data, word, 4, c_int(DEVICE_TO_HOST), stream)
        assert deferred.read(square, 6).tolist() == [1, 2, 5, 6, 9, 10]
        return int(values[0])

    assert outcomes(deferred, scenario) == {6}


def test_managed_memory_is_the_hosts_after_a_wait(deferred: Runtime, work: Work) -> None:
    address = deferred.made("cudaMallocManaged", 4, c_uint(1))
    view = c_uint32.from_address(address)
    view.value = 1
    work("put", address, 2)
    assert view.value == 1
    deferred.call("cudaDeviceSynchronize")
    assert view.value == 2
    deferred.call("cudaFree", address)


def test_a_query_makes_progress_and_tells_the_truth(deferred: Runtime, work: Work, word: int) -> None:
    stream, event = deferred.stream(), deferred.event()
    assert deferred.code("cudaStreamQuery", stream) == 0
    assert deferred.code("cudaEventQuery", event) == 0
    for _ in range(3):
        work("add", word, 1, stream)
    deferred.call("cudaEventRecord", event, stream)
    work("add", word, 1, stream)
    codes = [deferred.code("cudaEventQuery", event) for _ in range(5)]
    assert codes[0] == NOT_READY and codes[-1] == 0 and codes == sorted(codes, reverse=True)
    while deferred.code("cudaStreamQuery", stream) == NOT_READY:
        pass
    assert deferred.read(word)[0] == 4


def test_host_functions_run_in_stream_order(deferred: Runtime, work: Work, word: int) -> None:
    stream, seen = deferred.stream(), []
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: seen.append("called"))
    work("add", word, 1, stream)
    deferred.call("cudaLaunchHostFunc", stream, function, None)
    assert seen == []
    deferred.call("cudaStreamSynchronize", stream)
    assert seen == ["called"]


def test_a_host_function_comes_without_any_further_call(deferred: Runtime) -> None:
    stream, called = deferred.stream(), threading.Event()
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: called.set())
    deferred.call("cudaLaunchHostFunc", stream, function, None)
    assert not called.is_set()
    assert called.wait(30)


# ---- Streams ----


@pytest.mark.parametrize("waits", [False, True])
def test_two_streams_are_ordered_by_an_event(deferred: Runtime, work: Work, word: int, waits: bool) -> None:
    first, second, event = deferred.stream(), deferred.stream(), deferred.event()

    def scenario() -> int:
        work("put", word, 1, first)
        deferred.call("cudaEventRecord", event, first)
        if waits:
            deferred.call("cudaStreamWaitEvent", second, event, c_uint(0))
        work("put", word, 2, second)
        deferred.call("cudaStreamSynchronize", second)
        deferred.call("cudaStreamSynchronize", first)
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == ({2} if waits else {1, 2})


def test_an_event_stands_for_its_latest_record(deferred: Runtime, work: Work, word: int) -> None:
    first, second, event = deferred.stream(), deferred.stream(), deferred.event()

    def scenario() -> int:
        work("put", word, 1, first)
        deferred.call("cudaEventRecord", event, first)
        deferred.call("cudaStreamWaitEvent", second, event, c_uint(0))
        work("put", word, 3, first)
        deferred.call("cudaEventRecord", event, first)  # the wait was for the first one
        work("add", word, 10, second)
        deferred.call("cudaDeviceSynchronize")
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == {3, 13}


@pytest.mark.parametrize(
    ("streams", "wanted"),
    [
        ((LEGACY_STREAM, BLOCKING), {2}),
        ((BLOCKING, LEGACY_STREAM), {2}),
        ((PER_THREAD_STREAM, LEGACY_STREAM), {2}),
        ((LEGACY_STREAM, NON_BLOCKING), {1, 2}),
        ((NON_BLOCKING, LEGACY_STREAM), {1, 2}),
        ((BLOCKING, BLOCKING), {1, 2}),
        ((PER_THREAD_STREAM, BLOCKING), {1, 2}),
    ],
    ids=str,
)
def test_the_legacy_stream_and_blocking_streams_wait_for_each_other(
    deferred: Runtime, work: Work, word: int, streams: tuple[int, int], wanted: set[int]
) -> None:
    made = [deferred.stream(non_blocking=each) if isinstance(each, bool) else each for each in streams]

    def scenario() -> int:
        for value, stream in enumerate(made, 1):
            work("put", word, value, stream)
        for stream in reversed(made):
            deferred.call("cudaStreamSynchronize", stream)
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == wanted


def test_a_destroyed_stream_finishes_its_work(deferred: Runtime, work: Work, word: int) -> None:
    def scenario() -> int:
        stream = deferred.stream(non_blocking=False)
        work("put", word, 5, stream)
        deferred.call("cudaStreamDestroy", stream)
        work("add", word, 1, LEGACY_STREAM)
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == {6}


# ---- Graphs ----


def kernel_node(cuda: Runtime, graph: int, kernel: int, args: Args, after: list[int]) -> int:
    params = KernelNodeParams(kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), 0, args.array, None)
    return cuda.made("cudaGraphAddKernelNode", graph, (c_void_p * max(len(after), 1))(*after), c_size_t(len(after)), byref(params))


@pytest.mark.parametrize("edge", [False, True])
def test_nodes_without_an_edge_run_in_any_order(deferred: Runtime, work: Work, word: int, edge: bool) -> None:
    graph = deferred.made("cudaGraphCreate", c_uint(0))
    first = kernel_node(deferred, graph, work.kernels["put"], Args(c_uint64(word), c_uint32(1)), [])
    kernel_node(deferred, graph, work.kernels["put"], Args(c_uint64(word), c_uint32(2)), [first] if edge else [])
    executable = deferred.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    stream = deferred.stream()

    def scenario() -> int:
        deferred.call("cudaGraphLaunch", executable, stream)
        work("add", word, 10, stream)
        deferred.call("cudaStreamSynchronize", stream)
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == ({12} if edge else {11, 12})


def test_launches_of_one_executable_follow_each_other_and_keep_their_parameters(deferred: Runtime, work: Work, word: int) -> None:
    streams = [deferred.stream(), deferred.stream()]
    deferred.call("cudaStreamBeginCapture", streams[0], c_int(RELAXED))
    work("put", word, 1, streams[0])
    graph = c_void_p()
    deferred.call("cudaStreamEndCapture", streams[0], byref(graph))
    node, one = c_void_p(), c_size_t(1)
    deferred.call("cudaGraphGetNodes", graph, byref(node), byref(one))
    executable = deferred.made("cudaGraphInstantiate", graph, c_ulonglong(0))

    def scenario() -> int:
        for value, stream in ((1, streams[0]), (2, streams[1])):
            args = Args(c_uint64(word), c_uint32(value))
            params = KernelNodeParams(work.kernels["put"], Dim3(1, 1, 1), Dim3(1, 1, 1), 0, args.array, None)
            deferred.call("cudaGraphExecKernelNodeSetParams", executable, node, byref(params))
            deferred.call("cudaGraphLaunch", executable, stream)
        deferred.call("cudaDeviceSynchronize")
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == {2}


# ---- Memory ----


@pytest.mark.parametrize("ordered", [False, True])
def test_stream_ordered_memory_freed_while_another_stream_uses_it(deferred: Runtime, work: Work, ordered: bool) -> None:
    first, second, event = deferred.stream(), deferred.stream(), deferred.event()
    address = deferred.made("cudaMallocAsync", 4, first)
    work("put", address, 1, first)
    deferred.call("cudaStreamSynchronize", first)
    work("add", address, 1, second)
    if ordered:
        deferred.call("cudaEventRecord", event, second)
        deferred.call("cudaStreamWaitEvent", first, event, c_uint(0))
    deferred.call("cudaFreeAsync", address, first)
    kinds = [report["kind"] for report in deferred.reports()]
    assert kinds == ([] if ordered else ["free_unordered"])
    deferred.code("cudaDeviceSynchronize")
    deferred.library.aicfEmulatorClearError()


def test_a_free_waits_and_says_so(deferred: Runtime, work: Work) -> None:
    address = deferred.alloc(np.zeros(1, np.uint32))
    work("add", address, 1, deferred.stream())
    deferred.call("cudaFree", address)
    (report,) = deferred.reports()
    assert (report["kind"], report["severity"]) == ("free_in_use", "note")
    other = deferred.alloc(np.zeros(1, np.uint32))
    work("add", other, 1, deferred.stream())
    deferred.call("cudaDeviceSynchronize")
    deferred.call("cudaFree", other)
    assert deferred.reports() == []


def test_double_free_in_stream_order(deferred: Runtime) -> None:
    stream = deferred.stream()
    address = deferred.made("cudaMallocAsync", 64, stream)
    deferred.call("cudaFreeAsync", address, stream)
    assert deferred.code("cudaFreeAsync", address, stream) == 1
    assert [report["kind"] for report in deferred.reports()] == ["double_free"]


def test_a_kernels_error_comes_with_the_wait(emulator_library: Path) -> None:
    body = """
library = cuda.load(PTX)
address = cuda.alloc(np.zeros(1, np.uint32))
args = Args(ctypes.c_uint64(address + 4096), ctypes.c_uint32(1))
assert cuda.launch(cuda.kernel(library, "put"), args) == 0 and cuda.code("cudaGetLastError") == 0
assert cuda.code("cudaDeviceSynchronize") == 700 and cuda.code("cudaGetLastError") == 700
assert cuda.reports()[0]["kind"] == "out_of_bounds_write"
"""
    done = run_isolated(emulator_library, body, AICF_EMULATED_MODE="deferred", AICF_EMULATED_CHECKS="all")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("waits", [False, True])
def test_a_program_that_ends_without_waiting(emulator_library: Path, waits: bool) -> None:
    body = f"""
library = cuda.load(PTX)
address = cuda.alloc(np.zeros(1, np.uint32))
cuda.launch(cuda.kernel(library, "put"), Args(ctypes.c_uint64(address), ctypes.c_uint32(1)))
if {waits}: cuda.call("cudaDeviceSynchronize")
"""
    done = run_isolated(emulator_library, body, AICF_EMULATED_MODE="deferred", AICF_EMULATED_PRINT_REPORTS="1")
    assert ("without waiting for 1 pieces of queued work" in done.stderr) == (not waits), done.stderr


def test_many_launches_without_a_wait(deferred: Runtime, work: Work, word: int) -> None:
    stream = deferred.stream()
    for _ in range(3000):
        work("add", word, 1, stream)
    deferred.call("cudaStreamSynchronize", stream)
    assert deferred.read(word)[0] == 3000


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("call", ["copy", "fill"])
def test_work_within_the_device_is_not_waited_for(deferred: Runtime, work: Work, word: int, call: str, waits: bool) -> None:
    other, stream = deferred.alloc(np.array([4], np.uint32)), deferred.stream()

    def scenario() -> int:
        work("put", word, 0, stream)
        deferred.call("cudaStreamSynchronize", stream)
        if call == "copy":
            deferred.call("cudaMemcpy", word, other, 4, c_int(DEVICE_TO_DEVICE))
        else:
            deferred.call("cudaMemset", word, c_int(4), 1)
        if waits:
            deferred.call("cudaStreamSynchronize", LEGACY_STREAM)
        work("add", word, 1, stream)
        deferred.call("cudaDeviceSynchronize")
        return int(deferred.read(word)[0])

    assert outcomes(deferred, scenario) == ({5} if waits else {4, 5})
