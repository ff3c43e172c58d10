"""Graphs made by hand: nodes, edges, parameters, instantiation, update, launch. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import DEVICE_TO_HOST, Args, Dim3, KernelNodeParams, MemsetParams, Runtime, UpdateInfo

UPDATE_FAILURE = 910
TOPOLOGY_CHANGED, TYPE_CHANGED = 2, 3
KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT, RECORD = range(8)
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)


class HostParams(ctypes.Structure):
    _fields_ = (("fn", HostFunction), ("data", c_void_p))


class Builder:
    """A graph under construction, with the kernel parameters kept alive."""

    def __init__(self, cuda: Runtime, kernel: int) -> None:
        self.cuda = cuda
        self.kernel = kernel
        self.graph = cuda.made("cudaGraphCreate", c_uint(0))
        self._kept: list[object] = []

    def node(self, function: str, dependencies: list[int], *args: object) -> int:
        out, list_ = c_void_p(), (c_void_p * max(len(dependencies), 1))(*dependencies)
        self.cuda.call(function, byref(out), self.graph, list_, c_size_t(len(dependencies)), *args)
        assert out.value
        return out.value

    def params(self, word: int, value: int) -> KernelNodeParams:
        args = Args(c_uint64(word), c_uint32(value))
        self._kept.append(args)
        return KernelNodeParams(self.kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), 0, args.array, None)

    def add(self, word: int, value: int, *dependencies: int) -> int:
        return self.node("cudaGraphAddKernelNode", list(dependencies), byref(self.params(word, value)))

    def fill(self, word: int, byte: int, *dependencies: int) -> int:
        return self.node("cudaGraphAddMemsetNode", list(dependencies), byref(MemsetParams(word, 4, byte, 1, 4, 1)))

    def instantiate(self) -> int:
        return self.cuda.made("cudaGraphInstantiate", self.graph, c_ulonglong(0))


@pytest.fixture
def builder(cuda: Runtime, ptx_library: int) -> Builder:
    return Builder(cuda, cuda.kernel(ptx_library, "add"))


def launch(cuda: Runtime, executable: int) -> None:
    cuda.call("cudaGraphLaunch", executable, 0)
    cuda.call("cudaDeviceSynchronize")


def nodes_of(cuda: Runtime, function: str, handle: int, *between: object) -> list[int]:
    count = c_size_t()
    cuda.call(function, handle, None, *between, byref(count))
    if count.value == 0:
        return []
    out = (c_void_p * count.value)()
    cuda.call(function, handle, out, *between, byref(count))
    return [out[i] or 0 for i in range(count.value)]


def test_nodes_run_in_the_order_of_their_edges(cuda: Runtime, builder: Builder, word: int) -> None:
    first = builder.add(word, 1)
    last = builder.add(word, 100)
    middle = builder.fill(word, 0, first)
    cuda.call("cudaGraphAddDependencies", builder.graph, (c_void_p * 1)(middle), (c_void_p * 1)(last), None, c_size_t(1))
    executable = builder.instantiate()
    launch(cuda, executable)
    assert cuda.read(word)[0] == 100
    assert nodes_of(cuda, "cudaGraphGetRootNodes", builder.graph) == [first]
    assert nodes_of(cuda, "cudaGraphNodeGetDependencies", last, None) == [middle]
    assert nodes_of(cuda, "cudaGraphNodeGetDependentNodes", first, None) == [middle]
    assert sorted(nodes_of(cuda, "cudaGraphGetNodes", builder.graph)) == sorted([first, middle, last])
    cuda.call("cudaGraphExecDestroy", executable)
    cuda.call("cudaGraphDestroy", builder.graph)


def test_a_cycle_cannot_be_instantiated(cuda: Runtime, builder: Builder, word: int) -> None:
    first = builder.add(word, 1)
    second = builder.add(word, 1, first)
    code = cuda.code("cudaGraphAddDependencies", builder.graph, (c_void_p * 1)(second), (c_void_p * 1)(first), None, c_size_t(1))
    if code == 0:
        assert cuda.code("cudaGraphInstantiate", byref(c_void_p()), builder.graph, c_ulonglong(0)) == 1


def test_every_kind_of_node(cuda: Runtime, builder: Builder, word: int) -> None:
    seen: list[int] = []
    function = HostFunction(lambda data: seen.append(data or 0))
    host = HostParams(function, 17)
    target = np.zeros(1, np.uint32)
    event = cuda.event()
    child = Builder(cuda, builder.kernel)
    child.add(word, 1000)
    chain = [builder.node("cudaGraphAddEmptyNode", [])]
    chain.append(builder.fill(word, 0, chain[-1]))
    chain.append(builder.add(word, 5, chain[-1]))
    chain.append(builder.node("cudaGraphAddChildGraphNode", chain[-1:], child.graph))
    chain.append(builder.node("cudaGraphAddEventRecordNode", chain[-1:], event))
    chain.append(builder.node("cudaGraphAddEventWaitNode", chain[-1:], event))
    chain.append(builder.node("cudaGraphAddMemcpyNode1D", chain[-1:], target.ctypes.data, word, 4, c_int(DEVICE_TO_HOST)))
    chain.append(builder.node("cudaGraphAddHostNode", chain[-1:], byref(host)))
    kinds = []
    for node in chain:
        kind = c_int(-1)
        cuda.call("cudaGraphNodeGetType", node, byref(kind))
        kinds.append(kind.value)
    assert kinds == [EMPTY, MEMSET, KERNEL, CHILD, RECORD, WAIT, MEMCPY, HOST]
    executable = builder.instantiate()
    cuda.call("cudaGraphDestroy", child.graph)
    launch(cuda, executable)
    launch(cuda, executable)
    assert target[0] == 1005
    assert seen == [17, 17]
    cuda.call("cudaEventSynchronize", event)


def test_the_graph_can_go_before_what_was_instantiated_from_it(cuda: Runtime, builder: Builder, word: int) -> None:
    builder.add(word, 9)
    executable = builder.instantiate()
    cuda.call("cudaGraphDestroy", builder.graph)
    launch(cuda, executable)
    assert cuda.read(word)[0] == 9


def test_kernel_parameters_are_read_and_changed(cuda: Runtime, builder: Builder, word: int) -> None:
    node = builder.add(word, 1)
    if cuda.is_emulated:  # CUDA's own answers this for kernels with a host function only
        params = KernelNodeParams()
        cuda.call("cudaGraphKernelNodeGetParams", node, byref(params))
        assert (params.grid.x, params.block.x, params.shared_bytes) == (1, 1, 0)
        assert ctypes.cast(params.args[0], ctypes.POINTER(c_uint64))[0] == word
        assert ctypes.cast(params.args[1], ctypes.POINTER(c_uint32))[0] == 1
    executable = builder.instantiate()
    cuda.call("cudaGraphKernelNodeSetParams", node, byref(builder.params(word, 50)))
    launch(cuda, executable)
    assert cuda.read(word)[0] == 1
    cuda.call("cudaGraphExecKernelNodeSetParams", executable, node, byref(builder.params(word, 7)))
    launch(cuda, executable)
    assert cuda.read(word)[0] == 8


def test_arguments_in_one_buffer(cuda: Runtime, builder: Builder, word: int) -> None:
    buffer, size = (c_uint64 * 2)(word, 5), c_size_t(12)
    pointer, length, end = 1, 2, 0  # CU_LAUNCH_PARAM_...
    extra = (c_void_p * 5)(pointer, ctypes.addressof(buffer), length, ctypes.addressof(size), end)
    params = KernelNodeParams(builder.kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), 0, None, ctypes.cast(extra, c_void_p))
    builder.node("cudaGraphAddKernelNode", [], byref(params))
    buffer[1] = 99  # read when the node was made
    launch(cuda, builder.instantiate())
    assert cuda.read(word)[0] == 5


def test_other_parameters_are_changed(cuda: Runtime, builder: Builder, word: int) -> None:
    node = builder.fill(word, 1)
    executable = builder.instantiate()
    cuda.call("cudaGraphExecMemsetNodeSetParams", executable, node, byref(MemsetParams(word, 4, 2, 1, 4, 1)))
    launch(cuda, executable)
    assert cuda.read(word)[0] == 0x02020202
    params = MemsetParams()
    cuda.call("cudaGraphMemsetNodeGetParams", node, byref(params))
    assert (params.dst, params.value, params.element, params.width, params.height) == (word, 1, 1, 4, 1)


def test_update_takes_new_parameters(cuda: Runtime, builder: Builder, word: int) -> None:
    builder.add(word, 1)
    executable = builder.instantiate()
    changed = Builder(cuda, builder.kernel)
    changed.add(word, 20)
    info = UpdateInfo(-1)
    cuda.call("cudaGraphExecUpdate", executable, changed.graph, byref(info))
    assert info.result == 0
    launch(cuda, executable)
    assert cuda.read(word)[0] == 20


def test_update_refuses_another_topology(cuda: Runtime, builder: Builder, word: int) -> None:
    first = builder.add(word, 1)
    builder.add(word, 1, first)
    executable = builder.instantiate()
    info = UpdateInfo(-1)
    fewer = Builder(cuda, builder.kernel)
    fewer.add(word, 1)
    assert cuda.code("cudaGraphExecUpdate", executable, fewer.graph, byref(info)) == UPDATE_FAILURE
    assert info.result == TOPOLOGY_CHANGED
    other_kind = Builder(cuda, builder.kernel)
    other_kind.fill(word, 0, other_kind.add(word, 1))
    assert cuda.code("cudaGraphExecUpdate", executable, other_kind.graph, byref(info)) == UPDATE_FAILURE
    assert info.result == TYPE_CHANGED
    launch(cuda, executable)
    assert cuda.read(word)[0] == 2


def test_clones_and_finding_nodes_in_them(cuda: Runtime, builder: Builder, word: int) -> None:
    node = builder.add(word, 3)
    clone = cuda.made("cudaGraphClone", builder.graph)
    twin = cuda.made("cudaGraphNodeFindInClone", node, clone)
    assert twin != node
    cuda.call("cudaGraphKernelNodeSetParams", twin, byref(builder.params(word, 40)))
    launch(cuda, cuda.made("cudaGraphInstantiate", clone, c_ulonglong(0)))
    assert cuda.read(word)[0] == 40
    cuda.call("cudaGraphDestroy", builder.graph)
    cuda.call("cudaGraphDestroy", clone)


def test_nodes_are_switched_off(cuda: Runtime, builder: Builder, word: int) -> None:
    node = builder.add(word, 1)
    builder.add(word, 10, node)
    executable = builder.instantiate()
    enabled = c_uint(9)
    cuda.call("cudaGraphNodeSetEnabled", executable, node, c_uint(0))
    cuda.call("cudaGraphNodeGetEnabled", executable, node, byref(enabled))
    assert enabled.value == 0
    launch(cuda, executable)
    assert cuda.read(word)[0] == 10


def test_a_destroyed_node_takes_its_edges_along(cuda: Runtime, builder: Builder, word: int) -> None:
    first = builder.add(word, 1)
    second = builder.add(word, 2, first)
    cuda.call("cudaGraphDestroyNode", first)
    assert nodes_of(cuda, "cudaGraphNodeGetDependencies", second, None) == []
    launch(cuda, builder.instantiate())
    assert cuda.read(word)[0] == 2


def test_removing_an_edge(cuda: Runtime, builder: Builder, word: int) -> None:
    first = builder.add(word, 1)
    second = builder.add(word, 2, first)
    pair = ((c_void_p * 1)(first), (c_void_p * 1)(second))
    cuda.call("cudaGraphRemoveDependencies", builder.graph, *pair, None, c_size_t(1))
    assert cuda.code("cudaGraphRemoveDependencies", builder.graph, *pair, None, c_size_t(1)) == 1
    assert len(nodes_of(cuda, "cudaGraphGetRootNodes", builder.graph)) == 2


def test_dot_file(cuda: Runtime, builder: Builder, word: int, tmp_path: Path) -> None:
    builder.fill(word, 0, builder.add(word, 1))
    path = tmp_path / "graph.dot"
    cuda.call("cudaGraphDebugDotPrint", builder.graph, c_char_p(str(path).encode()), c_uint(1))
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("->") >= 1
    assert "add" in text


def test_memory_nodes(cuda: Runtime, emulator: Runtime, builder: Builder, word: int) -> None:
    stream = cuda.stream()
    cuda.call("cudaStreamBeginCapture", stream, c_int(2))
    cuda.made("cudaMallocAsync", 4, stream)
    graph = c_void_p()
    cuda.call("cudaStreamEndCapture", stream, byref(graph))
    executable = cuda.made("cudaGraphInstantiate", graph.value, c_ulonglong(0))
    launch(cuda, executable)
    assert cuda.code("cudaGraphLaunch", executable, 0) == 1
    assert "not freed" in cuda.message()


def test_a_buffer_freed_before_the_replay_is_reported(emulator: Runtime, builder: Builder) -> None:
    address = emulator.alloc(np.zeros(1, np.uint32))
    builder.fill(address, 1)
    executable = builder.instantiate()
    emulator.call("cudaFree", address)
    assert emulator.code("cudaGraphLaunch", executable, 0) == 1
    assert [r["kind"] for r in emulator.reports()] == ["host_copy_after_free"]


@pytest.mark.parametrize("function", ["cudaGraphDestroy", "cudaGraphExecDestroy", "cudaGraphDestroyNode"])
def test_handles_that_are_none(emulator: Runtime, function: str) -> None:
    assert emulator.code(function, 0x1234) == 1
