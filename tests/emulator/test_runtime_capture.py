"""Stream capture: each error code of CUDA's, forks and joins, and what a capture forbids. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p

import numpy as np
import pytest

from .cuda_runtime import DEVICE_TO_HOST, GLOBAL, HOST_TO_DEVICE, LEGACY_STREAM, RELAXED, THREAD_LOCAL, Args, Runtime

UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(900, 909)
ILLEGAL_STATE = 401


@pytest.fixture
def stream(cuda: Runtime) -> Iterator[int]:
    handle = cuda.stream()
    yield handle
    end(cuda, handle)
    cuda.code("cudaStreamDestroy", handle)


@pytest.fixture
def other(cuda: Runtime) -> Iterator[int]:
    handle = cuda.stream()
    yield handle
    end(cuda, handle)
    cuda.code("cudaStreamDestroy", handle)


@pytest.fixture
def put(cuda: Runtime, ptx_library: int) -> int:
    return cuda.kernel(ptx_library, "put")


@pytest.fixture
def add(cuda: Runtime, ptx_library: int) -> int:
    return cuda.kernel(ptx_library, "add")


def begin(cuda: Runtime, stream: int, mode: int = GLOBAL) -> None:
    cuda.call("cudaStreamBeginCapture", stream, c_int(mode))


def end(cuda: Runtime, stream: int) -> int:
    """End a capture, throw its graph away, and return the error."""
    graph = c_void_p()
    code = cuda.code("cudaStreamEndCapture", stream, byref(graph))
    if graph.value:
        cuda.code("cudaGraphDestroy", graph.value)
    return code


def end_graph(cuda: Runtime, stream: int) -> int:
    graph = c_void_p()
    cuda.call("cudaStreamEndCapture", stream, byref(graph))
    assert graph.value
    return graph.value


def status(cuda: Runtime, stream: int) -> int:
    out = c_int(-1)
    cuda.call("cudaStreamIsCapturing", stream, byref(out))
    return out.value


def replay(cuda: Runtime, graph: int, times: int = 1) -> None:
    executable = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    stream = cuda.stream()
    for _ in range(times):
        cuda.call("cudaGraphLaunch", executable, stream)
    cuda.call("cudaStreamSynchronize", stream)
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaStreamDestroy", stream)


def in_thread(work: Callable[[], int]) -> int:
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


def test_captured_work_runs_at_launch_only(cuda: Runtime, stream: int, word: int, add: int) -> None:
    begin(cuda, stream)
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(5)), stream) == 0
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(6)), stream) == 0
    assert status(cuda, stream) == 1
    graph = end_graph(cuda, stream)
    assert status(cuda, stream) == 0
    assert cuda.read(word)[0] == 0
    replay(cuda, graph, times=3)
    assert cuda.read(word)[0] == 33
    cuda.call("cudaGraphDestroy", graph)


def test_kernel_arguments_are_copied_at_capture(cuda: Runtime, stream: int, word: int, put: int) -> None:
    value = c_uint32(41)
    begin(cuda, stream)
    assert cuda.launch(put, Args(c_uint64(word), value), stream) == 0
    value.value = 99
    graph = end_graph(cuda, stream)
    replay(cuda, graph)
    assert cuda.read(word)[0] == 41
    cuda.call("cudaGraphDestroy", graph)


def test_copies_and_fills_are_captured(cuda: Runtime, stream: int) -> None:
    source = np.arange(8, dtype=np.uint32)
    target = np.zeros(8, np.uint32)
    first, second = cuda.alloc(np.zeros(8, np.uint32)), cuda.alloc(np.zeros(8, np.uint32))
    begin(cuda, stream, RELAXED)
    cuda.call("cudaMemcpyAsync", first, source.ctypes.data, 32, c_int(HOST_TO_DEVICE), stream)
    cuda.call("cudaMemcpyAsync", second, first, 32, c_int(3), stream)
    cuda.call("cudaMemsetAsync", second, c_int(0xFF), 4, stream)
    cuda.call("cudaMemcpyAsync", target.ctypes.data, second, 32, c_int(DEVICE_TO_HOST), stream)
    graph = end_graph(cuda, stream)
    source[:] += 10
    replay(cuda, graph)
    np.testing.assert_array_equal(target, [0xFFFFFFFF, *range(11, 18)])
    cuda.call("cudaGraphDestroy", graph)
    for address in (first, second):
        cuda.call("cudaFree", address)


def test_fork_and_join_over_two_streams(cuda: Runtime, stream: int, other: int, word: int, add: int, put: int) -> None:
    fork, join = cuda.event(), cuda.event()
    begin(cuda, stream)
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), stream) == 0
    cuda.call("cudaEventRecord", fork, stream)
    cuda.call("cudaStreamWaitEvent", other, fork, c_uint(0))
    assert status(cuda, other) == 1
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(10)), other) == 0
    cuda.call("cudaEventRecord", join, other)
    cuda.call("cudaStreamWaitEvent", stream, join, c_uint(0))
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(100)), stream) == 0
    graph = end_graph(cuda, stream)
    assert status(cuda, other) == 0
    count = ctypes.c_size_t()
    cuda.call("cudaGraphGetNodes", graph, None, byref(count))
    assert count.value == 3
    cuda.call("cudaGraphGetEdges", graph, None, None, None, byref(count))
    assert count.value == 3
    replay(cuda, graph)
    assert cuda.read(word)[0] == 111
    cuda.call("cudaGraphDestroy", graph)


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaStreamQuery"])
def test_900_waiting_for_a_capturing_stream(cuda: Runtime, stream: int, call: str) -> None:
    begin(cuda, stream, RELAXED)
    assert cuda.code(call, stream) == UNSUPPORTED
    assert status(cuda, stream) == 2
    assert end(cuda, stream) == INVALIDATED
    assert status(cuda, stream) == 0


def test_900_capturing_the_legacy_stream(cuda: Runtime) -> None:
    assert cuda.code("cudaStreamBeginCapture", 0, c_int(GLOBAL)) == UNSUPPORTED
    assert cuda.code("cudaStreamBeginCapture", LEGACY_STREAM, c_int(GLOBAL)) == UNSUPPORTED


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
@pytest.mark.parametrize(
    "call", ["malloc", "free", "device_sync", "event_query", "other_stream_sync", "instantiate", "malloc_async", "pinned"]
)
def test_900_unsafe_calls_are_forbidden(cuda: Runtime, stream: int, other: int, mode: int, call: str) -> None:
    address, event = cuda.alloc(np.zeros(4, np.uint32)), cuda.event()
    cuda.call("cudaEventRecord", event, other)
    cuda.call("cudaStreamSynchronize", other)
    begin(cuda, stream, mode)
    assert unsafe(cuda, call, address, event, other) == UNSUPPORTED
    assert end(cuda, stream) == INVALIDATED
    cuda.code("cudaFree", address)


def unsafe(cuda: Runtime, call: str, address: int, event: int, stream: int) -> int:
    match call:
        case "malloc":
            return cuda.code("cudaMalloc", byref(c_void_p()), 16)
        case "pinned":
            return cuda.code("cudaMallocHost", byref(c_void_p()), 16)
        case "free":
            return cuda.code("cudaFree", address)
        case "device_sync":
            return cuda.code("cudaDeviceSynchronize")
        case "event_query":
            return cuda.code("cudaEventQuery", event)
        case "instantiate":
            return cuda.code("cudaGraphInstantiate", byref(c_void_p()), cuda.made("cudaGraphCreate", c_uint(0)), c_ulonglong(0))
        case "malloc_async":
            return cuda.code("cudaMallocAsync", byref(c_void_p()), 16, 0)
        case _:
            return cuda.code("cudaStreamSynchronize", stream)


def test_a_device_wide_wait_is_forbidden_in_any_mode(cuda: Runtime, stream: int) -> None:
    begin(cuda, stream, RELAXED)
    assert cuda.code("cudaDeviceSynchronize") == UNSUPPORTED
    assert end(cuda, stream) == INVALIDATED


def test_a_synchronous_copy_is_permitted_beside_a_non_blocking_capture(cuda: Runtime, stream: int, word: int) -> None:
    begin(cuda, stream, GLOBAL)
    assert cuda.read(word)[0] == 0
    assert end(cuda, stream) == 0


def test_unsafe_calls_are_permitted_in_relaxed_mode(cuda: Runtime, stream: int, other: int) -> None:
    event = cuda.event()
    cuda.call("cudaEventRecord", event, other)
    begin(cuda, stream, RELAXED)
    address = cuda.made("cudaMalloc", 16)
    cuda.call("cudaEventQuery", event)
    cuda.call("cudaStreamSynchronize", other)
    cuda.call("cudaFree", address)
    assert end(cuda, stream) == 0


def test_a_global_capture_binds_other_threads_and_a_thread_local_one_does_not(cuda: Runtime, stream: int) -> None:
    def allocate() -> int:
        out = c_void_p()
        code = cuda.code("cudaMalloc", byref(out), 16)
        if out.value:
            cuda.call("cudaFree", out.value)
        return code

    begin(cuda, stream, THREAD_LOCAL)
    assert in_thread(allocate) == 0
    assert end(cuda, stream) == 0
    begin(cuda, stream, GLOBAL)
    assert in_thread(allocate) == UNSUPPORTED
    assert end(cuda, stream) == INVALIDATED


def test_the_thread_can_relax_itself(cuda: Runtime, stream: int) -> None:
    begin(cuda, stream, GLOBAL)
    mode = c_int(RELAXED)
    cuda.call("cudaThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == GLOBAL
    address = cuda.made("cudaMalloc", 16)
    cuda.call("cudaThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == RELAXED
    assert end(cuda, stream) == 0
    cuda.call("cudaFree", address)


def test_901_work_in_an_invalidated_capture(cuda: Runtime, stream: int, word: int, put: int) -> None:
    begin(cuda, stream)
    assert cuda.code("cudaStreamSynchronize", stream) == UNSUPPORTED
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), stream) == INVALIDATED
    assert end(cuda, stream) == INVALIDATED
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), stream) == 0


def test_a_launch_that_fails_invalidates_the_capture(cuda: Runtime, stream: int, word: int, put: int) -> None:
    begin(cuda, stream)
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), stream, block=(1025, 1, 1)) == 1
    assert status(cuda, stream) == 2
    assert end(cuda, stream) == INVALIDATED


def test_902_two_captures_may_not_merge(cuda: Runtime, stream: int, other: int) -> None:
    event = cuda.event()
    begin(cuda, stream)
    begin(cuda, other)
    cuda.call("cudaEventRecord", event, other)
    assert cuda.code("cudaStreamWaitEvent", stream, event, c_uint(0)) == MERGE
    assert end(cuda, stream) == INVALIDATED
    assert end(cuda, other) == INVALIDATED


def test_903_ending_in_another_stream(cuda: Runtime, stream: int, other: int) -> None:
    event = cuda.event()
    begin(cuda, stream)
    cuda.call("cudaEventRecord", event, stream)
    cuda.call("cudaStreamWaitEvent", other, event, c_uint(0))
    assert end(cuda, other) == UNMATCHED
    assert end(cuda, stream) == INVALIDATED


def test_a_forked_stream_may_go_once_it_is_joined(cuda: Runtime, stream: int, word: int, add: int) -> None:
    other, fork, join = cuda.stream(), cuda.event(), cuda.event()
    begin(cuda, stream)
    cuda.call("cudaEventRecord", fork, stream)
    cuda.call("cudaStreamWaitEvent", other, fork, c_uint(0))
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(10)), other) == 0
    cuda.call("cudaEventRecord", join, other)
    cuda.call("cudaStreamWaitEvent", stream, join, c_uint(0))
    cuda.call("cudaStreamDestroy", other)
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(100)), stream) == 0
    graph = end_graph(cuda, stream)
    replay(cuda, graph)
    assert cuda.read(word)[0] == 110
    cuda.call("cudaGraphDestroy", graph)


def test_904_unjoined_work(cuda: Runtime, stream: int, other: int, word: int, put: int) -> None:
    event = cuda.event()
    begin(cuda, stream)
    cuda.call("cudaEventRecord", event, stream)
    cuda.call("cudaStreamWaitEvent", other, event, c_uint(0))
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), other) == 0
    assert end(cuda, stream) == UNJOINED
    assert status(cuda, stream) == 0
    assert status(cuda, other) == 0


def test_905_waiting_for_work_outside(cuda: Runtime, stream: int, other: int) -> None:
    event = cuda.event()
    cuda.call("cudaEventRecord", event, other)
    begin(cuda, stream)
    assert cuda.code("cudaStreamWaitEvent", stream, event, c_uint(0)) == ISOLATION
    assert end(cuda, stream) == INVALIDATED


def test_906_the_legacy_stream_beside_a_blocking_capture(cuda: Runtime, word: int, put: int) -> None:
    blocking = cuda.stream(non_blocking=False)
    begin(cuda, blocking, RELAXED)
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(1)), 0) == IMPLICIT
    assert end(cuda, blocking) == INVALIDATED
    cuda.call("cudaStreamDestroy", blocking)


def test_906_a_copy_or_a_question_beside_a_blocking_capture(cuda: Runtime, word: int) -> None:
    blocking = cuda.stream(non_blocking=False)
    begin(cuda, blocking)
    assert cuda.code("cudaStreamIsCapturing", 0, byref(c_int())) == IMPLICIT
    assert status(cuda, blocking) == 1
    assert cuda.code("cudaMemset", word, c_int(0), 4) == IMPLICIT
    assert end(cuda, blocking) == INVALIDATED
    cuda.call("cudaStreamDestroy", blocking)


def test_the_legacy_stream_works_beside_a_non_blocking_capture(cuda: Runtime, stream: int, word: int, put: int) -> None:
    begin(cuda, stream)
    assert cuda.launch(put, Args(c_uint64(word), c_uint32(3)), 0) == 0
    assert end(cuda, stream) == 0
    assert cuda.read(word)[0] == 3


@pytest.mark.parametrize("call", ["cudaEventQuery", "cudaEventSynchronize"])
def test_907_a_captured_event_cannot_be_waited_for(cuda: Runtime, stream: int, call: str) -> None:
    event = cuda.event()
    begin(cuda, stream, RELAXED)
    cuda.call("cudaEventRecord", event, stream)
    assert cuda.code(call, event) == CAPTURED_EVENT
    assert end(cuda, stream) == INVALIDATED


def test_908_ending_from_another_thread(cuda: Runtime, stream: int) -> None:
    begin(cuda, stream, THREAD_LOCAL)
    assert in_thread(lambda: end(cuda, stream)) == WRONG_THREAD
    assert end(cuda, stream) == ILLEGAL_STATE
    begin(cuda, stream, RELAXED)
    assert in_thread(lambda: end(cuda, stream)) == 0


def test_beginning_twice_and_ending_nothing(cuda: Runtime, stream: int) -> None:
    assert end(cuda, stream) == ILLEGAL_STATE
    begin(cuda, stream)
    assert cuda.code("cudaStreamBeginCapture", stream, c_int(GLOBAL)) == ILLEGAL_STATE
    assert end(cuda, stream) == 0


def test_an_empty_capture_gives_an_empty_graph(cuda: Runtime, stream: int) -> None:
    begin(cuda, stream)
    graph = end_graph(cuda, stream)
    count = ctypes.c_size_t(9)
    cuda.call("cudaGraphGetNodes", graph, None, byref(count))
    assert count.value == 0
    replay(cuda, graph)
    cuda.call("cudaGraphDestroy", graph)


def test_capture_info_and_changed_dependencies(cuda: Runtime, stream: int, word: int, add: int) -> None:
    begin(cuda, stream)
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(1)), stream) == 0
    state, identity, graph, count = c_int(), c_ulonglong(), c_void_p(), ctypes.c_size_t()
    dependencies, edges = ctypes.POINTER(c_void_p)(), c_void_p()
    info = (stream, byref(state), byref(identity), byref(graph), byref(dependencies), byref(edges), byref(count))
    cuda.call("cudaStreamGetCaptureInfo", *info)
    assert (state.value, count.value) == (1, 1)
    assert graph.value
    first = dependencies[0]
    nothing = (c_void_p * 1)()
    cuda.call("cudaStreamUpdateCaptureDependencies", stream, nothing, None, ctypes.c_size_t(0), c_uint(1))
    cuda.call("cudaStreamGetCaptureInfo", *info)
    assert count.value == 0
    cuda.call("cudaStreamUpdateCaptureDependencies", stream, (c_void_p * 1)(first), None, ctypes.c_size_t(1), c_uint(0))
    cuda.call("cudaStreamGetCaptureInfo", *info)
    assert (count.value, dependencies[0]) == (1, first)
    cuda.call("cudaGraphDestroy", end_graph(cuda, stream))


def test_capturing_into_a_graph_of_ones_own(cuda: Runtime, stream: int, word: int, add: int) -> None:
    graph = cuda.made("cudaGraphCreate", c_uint(0))
    root = cuda.made("cudaGraphAddEmptyNode", graph, None, ctypes.c_size_t(0))
    cuda.call("cudaStreamBeginCaptureToGraph", stream, graph, (c_void_p * 1)(root), None, ctypes.c_size_t(1), c_int(GLOBAL))
    assert cuda.launch(add, Args(c_uint64(word), c_uint32(4)), stream) == 0
    assert end_graph(cuda, stream) == graph
    count = ctypes.c_size_t()
    cuda.call("cudaGraphGetEdges", graph, None, None, None, byref(count))
    assert count.value == 1
    replay(cuda, graph)
    assert cuda.read(word)[0] == 4
    cuda.call("cudaGraphDestroy", graph)


def test_memory_of_a_capture(cuda: Runtime, stream: int, put: int) -> None:
    target = np.zeros(1, np.uint32)
    begin(cuda, stream, RELAXED)
    address = cuda.made("cudaMallocAsync", 4, stream)
    assert cuda.launch(put, Args(c_uint64(address), c_uint32(77)), stream) == 0
    cuda.call("cudaMemcpyAsync", target.ctypes.data, address, 4, c_int(DEVICE_TO_HOST), stream)
    cuda.call("cudaFreeAsync", address, stream)
    graph = end_graph(cuda, stream)
    replay(cuda, graph, times=2)
    assert target[0] == 77
    cuda.call("cudaGraphDestroy", graph)


def test_an_ended_captures_event_is_no_dependency(cuda: Runtime, stream: int, other: int) -> None:
    event = cuda.event()
    begin(cuda, stream)
    cuda.call("cudaEventRecord", event, stream)
    assert end(cuda, stream) == 0
    codes = [cuda.code("cudaStreamWaitEvent", other, event, c_uint(0)), cuda.code("cudaEventQuery", event)]
    assert codes == [1, 1]


def test_a_wait_for_an_event_never_recorded_does_nothing(cuda: Runtime, stream: int) -> None:
    event = cuda.event()
    cuda.call("cudaStreamWaitEvent", stream, event, c_uint(0))
    begin(cuda, stream)
    assert cuda.code("cudaStreamWaitEvent", stream, event, c_uint(0)) == 0
    assert end(cuda, stream) == 0
