"""Memory pools and the memory of graphs: what is counted, kept, refused. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_ushort, c_void_p

import numpy as np
import pytest

from .cuda_runtime import RELAXED, Args, Runtime

INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED = 1, 2, 801
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = range(4, 9)
GRAPH_USED, GRAPH_USED_HIGH, GRAPH_RESERVED, GRAPH_RESERVED_HIGH = range(4)
AUTO_FREE = 1
MIB = 1 << 20


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class PoolProps(ctypes.Structure):
    """``cudaMemPoolProps``."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("usage", c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class AllocParams(ctypes.Structure):
    """``cudaMemAllocNodeParams``."""

    _fields_ = (("props", PoolProps), ("access", c_void_p), ("access_count", c_size_t), ("bytes", c_size_t), ("address", c_void_p))


def device_props(max_size: int = 0) -> PoolProps:
    return PoolProps(type=1, handles=0, location=Location(1, 0), max_size=max_size)


@pytest.fixture
def stream(cuda: Runtime) -> Iterator[int]:
    handle = cuda.stream()
    yield handle
    cuda.code("cudaStreamDestroy", handle)


@pytest.fixture
def pool(cuda: Runtime) -> Iterator[int]:
    made = cuda.made("cudaMemPoolCreate", byref(device_props()))
    yield made
    cuda.code("cudaMemPoolDestroy", made)


@pytest.fixture
def put(cuda: Runtime, ptx_library: int) -> int:
    return cuda.kernel(ptx_library, "put")


def read(cuda: Runtime, pool: int, attribute: int) -> int:
    out = c_uint64()
    cuda.call("cudaMemPoolGetAttribute", pool, c_int(attribute), byref(out))
    return out.value


def write(cuda: Runtime, pool: int, attribute: int, value: int) -> int:
    return cuda.code("cudaMemPoolSetAttribute", pool, c_int(attribute), byref(c_uint64(value)))


def of_graphs(cuda: Runtime, attribute: int) -> int:
    out = c_uint64()
    cuda.call("cudaDeviceGetGraphMemAttribute", c_int(0), c_int(attribute), byref(out))
    return out.value


def test_used_and_reserved_memory(cuda: Runtime, stream: int, pool: int) -> None:
    assert (read(cuda, pool, USED), read(cuda, pool, RESERVED)) == (0, 0)
    first = cuda.made("cudaMallocFromPoolAsync", 4 * MIB, pool, stream)
    second = cuda.made("cudaMallocFromPoolAsync", 2 * MIB, pool, stream)
    assert (read(cuda, pool, USED), read(cuda, pool, USED_HIGH)) == (6 * MIB, 6 * MIB)
    assert read(cuda, pool, RESERVED) >= 6 * MIB
    cuda.call("cudaFreeAsync", first, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert (read(cuda, pool, USED), read(cuda, pool, USED_HIGH)) == (2 * MIB, 6 * MIB)
    assert write(cuda, pool, USED_HIGH, 5) == INVALID_VALUE
    assert write(cuda, pool, USED_HIGH, 0) == 0
    assert read(cuda, pool, USED_HIGH) == 2 * MIB
    assert write(cuda, pool, USED, 0) == INVALID_VALUE
    cuda.call("cudaFreeAsync", second, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert (read(cuda, pool, USED), read(cuda, pool, RESERVED)) == (0, 0)
    assert read(cuda, pool, RESERVED_HIGH) >= 6 * MIB


def test_the_threshold_keeps_memory_and_a_trim_gives_it_back(cuda: Runtime, stream: int, pool: int) -> None:
    assert write(cuda, pool, THRESHOLD, (1 << 64) - 1) == 0
    assert read(cuda, pool, THRESHOLD) == (1 << 64) - 1
    cuda.call("cudaFreeAsync", cuda.made("cudaMallocFromPoolAsync", 100 * MIB, pool, stream), stream)
    cuda.call("cudaStreamSynchronize", stream)
    kept = read(cuda, pool, RESERVED)
    assert kept >= 100 * MIB
    cuda.call("cudaMemPoolTrimTo", pool, c_size_t(64 * MIB))
    assert 64 * MIB <= read(cuda, pool, RESERVED) <= kept
    cuda.call("cudaMemPoolTrimTo", pool, c_size_t(0))
    assert read(cuda, pool, RESERVED) == 0


def test_a_pool_has_its_limit(cuda: Runtime, stream: int) -> None:
    small, out = cuda.made("cudaMemPoolCreate", byref(device_props(64 * MIB))), c_void_p()
    assert cuda.code("cudaMallocFromPoolAsync", byref(out), 65 * MIB, small, stream) == OUT_OF_MEMORY
    address = cuda.made("cudaMallocFromPoolAsync", 32 * MIB, small, stream)
    cuda.call("cudaFreeAsync", address, stream)
    cuda.call("cudaStreamSynchronize", stream)
    cuda.call("cudaMemPoolDestroy", small)


def test_the_current_pool_serves_ordinary_calls(cuda: Runtime, stream: int, pool: int) -> None:
    default = cuda.made("cudaDeviceGetDefaultMemPool", c_int(0))
    assert cuda.made("cudaDeviceGetMemPool", c_int(0)) == default
    cuda.call("cudaDeviceSetMemPool", c_int(0), pool)
    assert cuda.made("cudaDeviceGetMemPool", c_int(0)) == pool
    address = cuda.made("cudaMallocAsync", MIB, stream)
    assert read(cuda, pool, USED) == MIB
    cuda.call("cudaFree", address)  # an ordinary free will do
    cuda.call("cudaDeviceSynchronize")
    if cuda.is_emulated:  # an H200 (driver 580) still counts it here
        assert read(cuda, pool, USED) == 0
    cuda.call("cudaDeviceSetMemPool", c_int(0), default)
    assert cuda.code("cudaMemPoolDestroy", default) == INVALID_VALUE


def test_pools_by_location(cuda: Runtime, pool: int) -> None:
    here = Location(1, 0)
    default = cuda.made("cudaMemGetDefaultMemPool", byref(here), c_int(1))
    assert default == cuda.made("cudaDeviceGetDefaultMemPool", c_int(0))
    cuda.call("cudaMemSetMemPool", byref(here), c_int(1), pool)
    assert cuda.made("cudaMemGetMemPool", byref(here), c_int(1)) == pool
    cuda.call("cudaMemSetMemPool", byref(here), c_int(1), default)


# ---- Memory of graphs ----


def alloc_node(cuda: Runtime, graph: int, size: int, after: int = 0) -> tuple[int, int]:
    params = AllocParams(props=device_props(), bytes=size)
    list_ = (c_void_p * 1)(after)
    node = cuda.made("cudaGraphAddMemAllocNode", graph, list_ if after else None, c_size_t(1 if after else 0), byref(params))
    return node, params.address or 0


def free_node(cuda: Runtime, graph: int, address: int, after: int = 0) -> int:
    out, list_ = c_void_p(), (c_void_p * 1)(after)
    return cuda.code("cudaGraphAddMemFreeNode", byref(out), graph, list_ if after else None, c_size_t(1 if after else 0), address)


@pytest.fixture
def graph(cuda: Runtime) -> Iterator[int]:
    made = cuda.made("cudaGraphCreate", c_uint(0))
    yield made
    cuda.code("cudaGraphDestroy", made)


def test_parameters_of_memory_nodes(cuda: Runtime, graph: int) -> None:
    node, address = alloc_node(cuda, graph, 4096)
    out = AllocParams()
    cuda.call("cudaGraphMemAllocNodeGetParams", node, byref(out))
    assert (out.bytes, out.address, out.props.location.type) == (4096, address, 1)
    assert free_node(cuda, graph, address, node) == 0
    assert free_node(cuda, graph, address, node) == INVALID_VALUE  # a second time
    ordinary = cuda.made("cudaMalloc", 64)
    assert free_node(cuda, graph, ordinary) == INVALID_VALUE
    cuda.call("cudaFree", ordinary)


def test_graph_memory_is_counted_and_trimmed(cuda: Runtime, graph: int, stream: int) -> None:
    cuda.call("cudaDeviceGraphMemTrim", c_int(0))
    before = of_graphs(cuda, GRAPH_USED), of_graphs(cuda, GRAPH_RESERVED)  # of graphs that other tests have left
    assert before[0] == before[1]
    _, address = alloc_node(cuda, graph, 8 * MIB)
    executable = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    cuda.call("cudaGraphLaunch", executable, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert of_graphs(cuda, GRAPH_USED) >= before[0] + 8 * MIB
    assert of_graphs(cuda, GRAPH_RESERVED) >= before[1] + 8 * MIB
    cuda.call("cudaFreeAsync", address, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert of_graphs(cuda, GRAPH_USED) == before[0] + 32 * MIB  # the executable graph keeps its share, in whole chunks
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaDeviceGraphMemTrim", c_int(0))
    assert (of_graphs(cuda, GRAPH_USED), of_graphs(cuda, GRAPH_RESERVED)) == before
    assert of_graphs(cuda, GRAPH_USED_HIGH) >= 32 * MIB
    cuda.call("cudaDeviceSetGraphMemAttribute", c_int(0), c_int(GRAPH_USED_HIGH), byref(c_uint64(0)))
    assert of_graphs(cuda, GRAPH_USED_HIGH) == before[0]


def captured(cuda: Runtime, stream: int, put: int, value: int, frees: bool) -> tuple[int, int]:
    """A graph that allocates a word and sets it, and the word's address."""
    cuda.call("cudaStreamBeginCapture", stream, c_int(RELAXED))
    address, made = cuda.made("cudaMallocAsync", 4, stream), c_void_p()
    assert cuda.launch(put, Args(c_uint64(address), c_uint32(value)), stream) == 0
    if frees:
        cuda.call("cudaFreeAsync", address, stream)
    cuda.call("cudaStreamEndCapture", stream, byref(made))
    return made.value or 0, address


def test_captured_memory_left_to_the_stream(cuda: Runtime, stream: int, put: int) -> None:
    graph, address = captured(cuda, stream, put, 5, frees=False)
    executable = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    for _ in range(2):
        cuda.call("cudaGraphLaunch", executable, stream)
        cuda.call("cudaStreamSynchronize", stream)
        assert cuda.read(address)[0] == 5
        assert cuda.code("cudaGraphLaunch", executable, stream) == INVALID_VALUE  # its memory is still there
        cuda.call("cudaFreeAsync", address, stream)
    cuda.call("cudaStreamSynchronize", stream)
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaGraphDestroy", graph)


def test_memory_freed_by_the_next_launch(cuda: Runtime, stream: int, put: int) -> None:
    graph, address = captured(cuda, stream, put, 6, frees=False)
    executable = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(AUTO_FREE))
    for _ in range(3):
        cuda.call("cudaGraphLaunch", executable, stream)
    cuda.call("cudaStreamSynchronize", stream)
    assert cuda.read(address)[0] == 6
    cuda.call("cudaFree", address)
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaGraphDestroy", graph)


def test_memory_freed_by_another_graph(cuda: Runtime, graph: int, stream: int, put: int) -> None:
    makes, address = captured(cuda, stream, put, 7, frees=False)
    assert free_node(cuda, graph, address) == 0
    first, second = (cuda.made("cudaGraphInstantiate", each, c_ulonglong(0)) for each in (makes, graph))
    for _ in range(2):
        cuda.call("cudaGraphLaunch", first, stream)
        cuda.call("cudaGraphLaunch", second, stream)
    cuda.call("cudaStreamSynchronize", stream)
    for each in (first, second):
        cuda.call("cudaGraphExecDestroy", each)
    cuda.call("cudaGraphDestroy", makes)


def test_what_a_graph_with_memory_nodes_cannot(cuda: Runtime, graph: int, stream: int) -> None:
    node, address = alloc_node(cuda, graph, 64)
    assert free_node(cuda, graph, address, node) == 0
    out, other = c_void_p(), cuda.made("cudaGraphCreate", c_uint(0))
    assert cuda.code("cudaGraphClone", byref(out), graph) == NOT_SUPPORTED
    assert cuda.code("cudaGraphAddChildGraphNode", byref(out), other, None, c_size_t(0), graph) == NOT_SUPPORTED
    assert cuda.code("cudaGraphDestroyNode", node) == NOT_SUPPORTED
    executable = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    assert cuda.code("cudaGraphInstantiate", byref(out), graph, c_ulonglong(0)) == NOT_SUPPORTED
    cuda.call("cudaGraphLaunch", executable, stream)
    cuda.call("cudaStreamSynchronize", stream)
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaGraphDestroy", other)


def test_graph_memory_outside_its_life_is_a_finding(emulator: Runtime, stream: int, put: int) -> None:
    emulator.set_option("checks", "all")
    graph, address = captured(emulator, stream, put, 8, frees=True)
    executable = emulator.made("cudaGraphInstantiate", graph, c_ulonglong(0))
    emulator.call("cudaGraphLaunch", executable, stream)
    assert emulator.reports() == []
    assert emulator.launch(put, Args(c_uint64(address), c_uint32(9)), stream) == 0
    (report,) = emulator.reports()
    assert report["kind"] == "use_after_free" and "graph memory" in report["text"]
    emulator.library.aicfEmulatorClearError()
    assert emulator.code("cudaMemcpy", np.zeros(1, np.uint32).ctypes.data, address, 4, c_int(2)) == INVALID_VALUE
    assert [each["kind"] for each in emulator.reports()] == ["host_copy_after_free"]
    emulator.set_option("checks", "none")
