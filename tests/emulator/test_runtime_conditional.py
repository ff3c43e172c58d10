"""Conditional graph nodes: IF, WHILE and SWITCH, nested and captured, updated and printed. Runs on a GPU too (AICF_DEVICE=cuda)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

import pytest

from .cuda_runtime import RELAXED, Args, CudaError, Dim3, KernelNodeParams, Runtime, UpdateInfo

INVALID_VALUE, NOT_SUPPORTED, UPDATE_FAILURE = 1, 801, 910
IF, WHILE, SWITCH = range(3)
CONDITIONAL_NODE, CHILD_NODE = 13, 4
ASSIGN_DEFAULT = 1

# The device runtime's function, which the emulated device has built in; on a GPU it comes with -rdc=true from libcudadevrt.
SETTERS = r"""
.version 8.3
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

// ++*p; the handle gets *p < limit
.visible .entry count_below(.param .u64 p, .param .u32 limit, .param .u64 handle)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<5>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [limit];
    ld.param.u64 %rd2, [handle];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd1], %r2;
    setp.lt.u32 %p1, %r2, %r1;
    selp.u32 %r3, 1, 0, %p1;
    { .param .b64 a; .param .b32 b;
      st.param.b64 [a], %rd2;
      st.param.b32 [b], %r3;
      call.uni cudaGraphSetConditional, (a, b); }
    ret;
}
"""


class ConditionalParams(ctypes.Structure):
    _fields_ = (("handle", c_ulonglong), ("type", c_int), ("size", c_uint), ("graphs", ctypes.POINTER(c_void_p)))


class NodeUnion(ctypes.Union):
    _fields_ = (("reserved", ctypes.c_longlong * 29), ("conditional", ConditionalParams))


class NodeParams(ctypes.Structure):
    """``cudaGraphNodeParams``."""

    _fields_ = (("type", c_int), ("reserved0", c_int * 3), ("of", NodeUnion), ("reserved2", ctypes.c_longlong))


@pytest.fixture
def graph(cuda: Runtime) -> Iterator[int]:
    made = cuda.made("cudaGraphCreate", c_uint(0))
    yield made
    cuda.code("cudaGraphDestroy", made)


@pytest.fixture
def add(cuda: Runtime, ptx_library: int) -> int:
    return cuda.kernel(ptx_library, "add")


@pytest.fixture
def count_below(emulator: Runtime) -> int:
    return emulator.kernel(emulator.load(SETTERS), "count_below")


def make_handle(cuda: Runtime, graph: int, value: int = 0, flags: int = ASSIGN_DEFAULT) -> int:
    out = c_ulonglong()
    cuda.call("cudaGraphConditionalHandleCreate", byref(out), graph, c_uint(value), c_uint(flags))
    return out.value


def try_conditional(cuda: Runtime, graph: int, handle: int, kind: int, size: int, after: int = 0) -> tuple[int, int, list[int]]:
    """Error, node and bodies of a new conditional node."""
    params, node = NodeParams(type=CONDITIONAL_NODE), c_void_p()
    params.of.conditional = ConditionalParams(handle, kind, size, None)
    dependencies = (c_void_p * 1)(after)
    code = cuda.code(
        "cudaGraphAddNode", byref(node), graph, dependencies if after else None, None, c_size_t(1 if after else 0), byref(params)
    )
    return code, node.value or 0, [params.of.conditional.graphs[i] or 0 for i in range(size)] if code == 0 else []


def conditional(cuda: Runtime, graph: int, handle: int, kind: int, size: int = 1, after: int = 0) -> tuple[int, list[int]]:
    code, node, bodies = try_conditional(cuda, graph, handle, kind, size, after)
    if code:
        raise CudaError(f"{code}: {cuda.message()}")
    return node, bodies


def kernel_node(cuda: Runtime, graph: int, kernel: int, args: Args, after: int = 0) -> int:
    params = KernelNodeParams(kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), 0, ctypes.cast(args.array, ctypes.POINTER(c_void_p)), None)
    dependencies = (c_void_p * 1)(after)
    return cuda.made("cudaGraphAddKernelNode", graph, dependencies if after else None, c_size_t(1 if after else 0), byref(params))


def instantiate(cuda: Runtime, graph: int) -> int:
    return cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))


def launch(cuda: Runtime, executable: int, times: int = 1) -> None:
    stream = cuda.stream()
    for _ in range(times):
        cuda.call("cudaGraphLaunch", executable, stream)
    cuda.call("cudaStreamSynchronize", stream)
    cuda.call("cudaStreamDestroy", stream)


def run(cuda: Runtime, graph: int, times: int = 1) -> None:
    executable = instantiate(cuda, graph)
    launch(cuda, executable, times)
    cuda.call("cudaGraphExecDestroy", executable)


def plus(word: int, value: int) -> Args:
    return Args(c_uint64(word), c_uint32(value))


@pytest.mark.parametrize(("value", "wanted"), [(0, 20), (1, 3), (7, 3)])
def test_if_and_else(cuda: Runtime, graph: int, word: int, add: int, value: int, wanted: int) -> None:
    node, bodies = conditional(cuda, graph, make_handle(cuda, graph, value), IF, 2)
    first = kernel_node(cuda, bodies[0], add, plus(word, 1))
    kernel_node(cuda, bodies[0], add, plus(word, 2), after=first)  # unordered, they would race
    kernel_node(cuda, bodies[1], add, plus(word, 20))
    kind = c_int()
    cuda.call("cudaGraphNodeGetType", node, byref(kind))
    assert kind.value == CONDITIONAL_NODE
    run(cuda, graph)
    assert cuda.read(word)[0] == wanted


@pytest.mark.parametrize("value", range(5))
def test_switch_runs_the_body_of_its_value_or_none(cuda: Runtime, graph: int, word: int, add: int, value: int) -> None:
    _, bodies = conditional(cuda, graph, make_handle(cuda, graph, value), SWITCH, 4)
    for i, body in enumerate(bodies):
        kernel_node(cuda, body, add, plus(word, 10**i))
    run(cuda, graph)
    assert cuda.read(word)[0] == (10**value if value < 4 else 0)


def test_the_default_is_assigned_at_each_launch(cuda: Runtime, graph: int, word: int, add: int) -> None:
    _, bodies = conditional(cuda, graph, make_handle(cuda, graph, 1), IF)
    kernel_node(cuda, bodies[0], add, plus(word, 1))
    run(cuda, graph, times=3)
    assert cuda.read(word)[0] == 3


def test_while_until_device_code_says_so(emulator: Runtime, graph: int, word: int, add: int, count_below: int) -> None:
    handle = make_handle(emulator, graph, 1)
    node, bodies = conditional(emulator, graph, handle, WHILE)
    kernel_node(emulator, bodies[0], count_below, Args(c_uint64(word), c_uint32(5), c_uint64(handle)))
    kernel_node(emulator, graph, add, plus(word, 100), after=node)
    run(emulator, graph)
    assert emulator.read(word)[0] == 105
    assert emulator.reports() == []


def test_a_kernel_before_decides(emulator: Runtime, graph: int, word: int, add: int, count_below: int) -> None:
    handle = make_handle(emulator, graph, 0, flags=0)
    first = kernel_node(emulator, graph, count_below, Args(c_uint64(word), c_uint32(3), c_uint64(handle)))
    _, bodies = conditional(emulator, graph, handle, IF, 1, after=first)
    kernel_node(emulator, bodies[0], add, plus(word, 100))
    executable = instantiate(emulator, graph)
    for wanted in (101, 102, 103):
        launch(emulator, executable)
        assert emulator.read(word)[0] == wanted
    emulator.call("cudaGraphExecDestroy", executable)


def test_nested_and_captured_bodies(emulator: Runtime, graph: int, word: int, add: int, count_below: int) -> None:
    loop = make_handle(emulator, graph, 1)
    inner = make_handle(emulator, graph, 1)
    _, (body,) = conditional(emulator, graph, loop, WHILE)
    stream = emulator.stream()
    emulator.call("cudaStreamBeginCaptureToGraph", stream, body, None, None, c_size_t(0), c_int(RELAXED))
    assert emulator.launch(count_below, Args(c_uint64(word), c_uint32(40), c_uint64(loop)), stream) == 0
    # The node that is captured so far goes before a node that is made by hand, and the stream goes on after that one.
    state, tail, count = c_int(), ctypes.POINTER(c_void_p)(), c_size_t()
    emulator.call("cudaStreamGetCaptureInfo", stream, byref(state), None, None, byref(tail), None, byref(count))
    assert (state.value, count.value) == (1, 1)
    node, (branch,) = conditional(emulator, body, inner, IF, 1, after=tail[0] or 0)
    kernel_node(emulator, branch, add, plus(word, 10))
    after = (c_void_p * 1)(node)
    emulator.call("cudaStreamUpdateCaptureDependencies", stream, after, None, c_size_t(1), c_uint(1))
    assert emulator.launch(add, plus(word, 0), stream) == 0
    ended = c_void_p()
    emulator.call("cudaStreamEndCapture", stream, byref(ended))
    assert ended.value == body
    run(emulator, graph)
    # 1, 11; 12, 22; 23, 33; 34, 44; 45 ends the loop, 55
    assert emulator.read(word)[0] == 55
    emulator.call("cudaStreamDestroy", stream)


@pytest.mark.parametrize(("kind", "size"), [(IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (3, 1)])
def test_sizes_that_a_kind_has_not(cuda: Runtime, graph: int, kind: int, size: int) -> None:
    handle = make_handle(cuda, graph)
    assert try_conditional(cuda, graph, handle, kind, size)[0] == INVALID_VALUE


def test_handles_are_checked(cuda: Runtime, graph: int) -> None:
    out = c_ulonglong()
    assert cuda.code("cudaGraphConditionalHandleCreate", byref(out), graph, c_uint(0), c_uint(2)) == INVALID_VALUE
    handle = make_handle(cuda, graph)
    executable = c_void_p()
    assert cuda.code("cudaGraphInstantiate", byref(executable), graph, c_ulonglong(0)) == INVALID_VALUE  # used by no node
    conditional(cuda, graph, handle, IF)
    assert try_conditional(cuda, graph, handle, IF, 1)[0] == INVALID_VALUE  # used already
    run(cuda, graph)


def test_what_a_graph_with_conditional_nodes_cannot(cuda: Runtime, graph: int, word: int, add: int) -> None:
    _, (body,) = conditional(cuda, graph, make_handle(cuda, graph, 1), IF)
    kernel_node(cuda, body, add, plus(word, 1))
    out, other = c_void_p(), cuda.made("cudaGraphCreate", c_uint(0))
    assert cuda.code("cudaGraphClone", byref(out), graph) == NOT_SUPPORTED
    assert cuda.code("cudaGraphAddChildGraphNode", byref(out), other, None, c_size_t(0), graph) == NOT_SUPPORTED
    executable = instantiate(cuda, graph)
    assert cuda.code("cudaGraphInstantiate", byref(out), graph, c_ulonglong(0)) == NOT_SUPPORTED
    cuda.call("cudaGraphExecDestroy", executable)
    run(cuda, graph)
    assert cuda.code("cudaGraphDestroy", body) == INVALID_VALUE
    assert cuda.read(word)[0] == 1
    cuda.call("cudaGraphDestroy", other)


def test_bodies_hold_device_work_only(cuda: Runtime, graph: int) -> None:
    _, (body,) = conditional(cuda, graph, make_handle(cuda, graph), IF)
    event, out = cuda.event(), c_void_p()
    added = cuda.code("cudaGraphAddEventRecordNode", byref(out), body, None, c_size_t(0), event)
    assert added or cuda.code("cudaGraphInstantiate", byref(out), graph, c_ulonglong(0)) == INVALID_VALUE
    cuda.call("cudaEventDestroy", event)


def update(cuda: Runtime, executable: int, graph: int) -> tuple[int, int]:
    info = UpdateInfo()
    return cuda.code("cudaGraphExecUpdate", executable, graph, byref(info)), info.result


def test_bodies_are_updated(cuda: Runtime, word: int, add: int) -> None:
    graphs = [cuda.made("cudaGraphCreate", c_uint(0)) for _ in range(4)]
    for i, (graph, kind, size) in enumerate(zip(graphs, (SWITCH, SWITCH, SWITCH, IF), (2, 2, 3, 2), strict=True)):
        _, bodies = conditional(cuda, graph, make_handle(cuda, graph, 1), kind, size)
        for body in bodies:
            kernel_node(cuda, body, add, plus(word, 10**i))
    executable = instantiate(cuda, graphs[0])
    launch(cuda, executable)
    assert update(cuda, executable, graphs[1]) == (0, 0)
    launch(cuda, executable)
    assert cuda.read(word)[0] == 11
    for other in graphs[2:]:
        code, result = update(cuda, executable, other)
        assert code == UPDATE_FAILURE and result != 0
    cuda.call("cudaGraphExecDestroy", executable)
    for graph in graphs:
        cuda.call("cudaGraphDestroy", graph)


def test_bodies_are_printed(cuda: Runtime, graph: int, word: int, add: int, tmp_path: Path) -> None:
    _, bodies = conditional(cuda, graph, make_handle(cuda, graph, 1), IF, 2)
    for body in bodies:
        kernel_node(cuda, body, add, plus(word, 1))
    path = tmp_path / "graph.dot"
    cuda.call("cudaGraphDebugDotPrint", graph, ctypes.c_char_p(str(path).encode()), c_uint(0))
    text = path.read_text()
    assert text.count("subgraph") >= 2 and "digraph" in text
    if cuda.is_emulated:
        assert "if handle" in text and text.count("kernel") >= 2


def test_a_foreign_handle_in_device_code_is_a_finding(emulator: Runtime, word: int, count_below: int) -> None:
    assert emulator.launch(count_below, Args(c_uint64(word), c_uint32(1), c_uint64(1 << 40))) == 0
    (report,) = emulator.reports()
    assert report["kind"] == "conditional_handle"
    assert str(1 << 40) in report["text"]
