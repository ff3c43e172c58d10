"""Misuse by the host: handles that were destroyed, what is left at the end, memory touched from the wrong side."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

import pytest

from .cuda_runtime import Args, Runtime, run_isolated

INVALID_VALUE, INVALID_HANDLE = 1, 400

Use = Callable[[Runtime, int], int]


def destroyed(cuda: Runtime, kind: str) -> int:
    match kind:
        case "stream":
            made = cuda.stream()
            cuda.call("cudaStreamDestroy", made)
        case "event":
            made = cuda.event()
            cuda.call("cudaEventDestroy", made)
        case "graph":
            made = cuda.made("cudaGraphCreate", c_uint(0))
            cuda.call("cudaGraphDestroy", made)
        case _:
            graph = cuda.made("cudaGraphCreate", c_uint(0))
            made = cuda.made("cudaGraphInstantiate", graph, c_ulonglong(0))
            cuda.call("cudaGraphDestroy", graph)
            cuda.call("cudaGraphExecDestroy", made)
    return made


USES: list[tuple[str, str, Use]] = [
    ("stream", "wait", lambda cuda, stream: cuda.code("cudaStreamSynchronize", stream)),
    ("stream", "copy", lambda cuda, stream: cuda.code("cudaMemsetAsync", cuda.made("cudaMalloc", 4), c_int(0), 4, stream)),
    ("stream", "record", lambda cuda, stream: cuda.code("cudaEventRecord", cuda.event(), stream)),
    ("stream", "destroy", lambda cuda, stream: cuda.code("cudaStreamDestroy", stream)),
    ("event", "wait", lambda cuda, event: cuda.code("cudaEventSynchronize", event)),
    ("event", "stream wait", lambda cuda, event: cuda.code("cudaStreamWaitEvent", cuda.stream(), event, c_uint(0))),
    ("event", "destroy", lambda cuda, event: cuda.code("cudaEventDestroy", event)),
    ("graph", "instantiate", lambda cuda, graph: cuda.code("cudaGraphInstantiate", byref(c_void_p()), graph, c_ulonglong(0))),
    ("graph", "destroy", lambda cuda, graph: cuda.code("cudaGraphDestroy", graph)),
    ("executable graph", "launch", lambda cuda, executable: cuda.code("cudaGraphLaunch", executable, 0)),
    ("executable graph", "destroy", lambda cuda, executable: cuda.code("cudaGraphExecDestroy", executable)),
]


@pytest.mark.parametrize(("kind", "use"), [pytest.param(kind, use, id=f"{kind}-{name}") for kind, name, use in USES])
def test_a_destroyed_handle(emulator: Runtime, kind: str, use: Use) -> None:
    handle = destroyed(emulator, kind)
    assert emulator.reports() == []
    assert use(emulator, handle) == (INVALID_VALUE if "graph" in kind else INVALID_HANDLE)
    (report,) = emulator.reports()
    assert report["kind"] == "destroyed_handle"
    assert f"{kind} {handle:#x}, which was destroyed" in report["text"]


def test_a_launch_in_a_destroyed_stream(emulator: Runtime, ptx_library: int, word: int) -> None:
    put = emulator.kernel(ptx_library, "put")
    assert emulator.launch(put, Args(c_uint64(word), c_uint32(1)), destroyed(emulator, "stream")) == INVALID_HANDLE
    assert [report["kind"] for report in emulator.reports()] == ["destroyed_handle"]


def test_handles_that_live_are_no_finding(emulator: Runtime, word: int) -> None:
    for _ in range(50):
        stream, event = emulator.stream(), emulator.event()
        emulator.call("cudaMemsetAsync", word, c_int(0), 4, stream)
        emulator.call("cudaEventRecord", event, stream)
        emulator.call("cudaEventSynchronize", event)
        emulator.call("cudaEventDestroy", event)
        emulator.call("cudaStreamDestroy", stream)
    assert emulator.reports() == []


LEAKS = """
class Extent(ctypes.Structure):
    _fields_ = (("width", c_size_t), ("height", c_size_t), ("depth", c_size_t))
class Format(ctypes.Structure):
    _fields_ = (("x", c_int), ("y", c_int), ("z", c_int), ("w", c_int), ("f", c_int))
class Props(ctypes.Structure):
    _fields_ = (("type", c_int), ("handles", c_int), ("place", c_int), ("device", c_int), ("more", ctypes.c_ubyte * 72))
form, own = Format(32, 0, 0, 0, 2), np.zeros(16)
stream, event = cuda.stream(), cuda.event()
device, pinned, managed = cuda.made("cudaMalloc", 64), cuda.made("cudaMallocHost", 32), cuda.made("cudaMallocManaged", 16, c_uint(1))
pooled = cuda.made("cudaMallocAsync", 8, stream)
cuda.call("cudaHostRegister", own.ctypes.data, 128, c_uint(0))
array = cuda.made("cudaMallocArray", byref(form), c_size_t(4), c_size_t(4), c_uint(0))
pool = cuda.made("cudaMemPoolCreate", byref(Props(1, 0, 1, 0)))
graph = cuda.made("cudaGraphCreate", c_uint(0))
executable = cuda.made("cudaGraphInstantiate", graph, ctypes.c_ulonglong(0))
"""
CLEANING = """
for name, handle in (("FreeArray", array), ("MemPoolDestroy", pool), ("GraphExecDestroy", executable), ("GraphDestroy", graph),
                     ("HostUnregister", own.ctypes.data), ("Free", device), ("FreeHost", pinned), ("Free", managed), ("Free", pooled),
                     ("EventDestroy", event), ("StreamDestroy", stream)):
    cuda.call("cuda" + name, handle)
"""


@pytest.mark.parametrize("cleans", [False, True])
def test_everything_left_at_the_end_is_listed(emulator_library: Path, tmp_path: Path, cleans: bool) -> None:
    report = tmp_path / "report.json"
    body = LEAKS + (CLEANING if cleans else "")
    done = run_isolated(emulator_library, body, AICF_EMULATED_LEAK_CHECK="1", AICF_EMULATED_SUMMARY_FILE=str(report))
    assert done.returncode == 0, done.stderr
    texts = [finding["text"] for finding in json.loads(report.read_text())["findings"]]
    if cleans:
        assert texts == []
        return
    for wanted in (
        "64 bytes",
        "32 bytes",
        "16 bytes",
        "8 bytes",
        "128 bytes",
        "1 CUDA array",
        "1 memory pool",
        "1 graph",
        "1 executable graph",
        "1 event",
        "1 stream",
    ):
        assert any(wanted in text for text in texts), (wanted, texts)


def test_host_code_that_touches_device_memory_is_in_the_report(emulator_library: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    body = 'address = cuda.made("cudaMalloc", 16)\nctypes.c_int.from_address(address).value'
    done = run_isolated(emulator_library, body, AICF_EMULATED_SUMMARY_FILE=str(report), AICF_EMULATED_PRINT_REPORTS="1")
    assert done.returncode == -11
    (finding,) = json.loads(report.read_text())["findings"]
    assert finding["kind"] == "host_access" and "0 bytes into allocation #1 of 16 bytes" in finding["text"]
    assert done.stderr.count("host code dereferenced") == 1


def test_a_pinned_buffer_touched_after_its_free(emulator_library: Path) -> None:
    body = 'address = cuda.made("cudaMallocHost", 16)\ncuda.call("cudaFreeHost", address)\nctypes.c_int.from_address(address).value = 1'
    done = run_isolated(emulator_library, body)
    assert done.returncode == -11
    assert "0 bytes into the freed allocation #1" in done.stderr


# ---- Managed memory: advice ----


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


def ask(cuda: Runtime, attribute: int, address: int, count: int, size: int = 1) -> list[int]:
    out = (c_int * size)()
    cuda.call("cudaMemRangeGetAttribute", byref(out), c_size_t(4 * size), c_int(attribute), address, c_size_t(count))
    return list(out)


def test_advice_and_prefetches_are_remembered_by_range(emulator: Runtime) -> None:
    size, here, host, invalid = 1 << 16, Location(1, 0), Location(2, 0), -2
    address = emulator.made("cudaMallocManaged", size, c_uint(1))
    read_mostly, preferred, accessed_by, prefetched = 1, 2, 3, 4
    assert ask(emulator, read_mostly, address, size) == [0] and ask(emulator, preferred, address, size) == [invalid]
    emulator.call("cudaMemAdvise", address, c_size_t(size // 2), c_int(1), here)
    emulator.call("cudaMemAdvise", address, c_size_t(size), c_int(3), host)
    emulator.call("cudaMemAdvise", address, c_size_t(size), c_int(5), here)
    emulator.call("cudaMemPrefetchAsync", address + 4096, c_size_t(4096), here, c_uint(0), 0)
    assert ask(emulator, read_mostly, address, size // 2) == [1] and ask(emulator, read_mostly, address, size) == [0]
    assert ask(emulator, preferred, address + 5, 10) == [-1]
    assert ask(emulator, accessed_by, address, size, 2) == [0, invalid]
    assert ask(emulator, prefetched, address + 4096, 4096) == [0] and ask(emulator, prefetched, address, 8192) == [invalid]
    emulator.call("cudaFree", address)
    device = emulator.made("cudaMalloc", 64)
    assert emulator.code("cudaMemAdvise", device, c_size_t(64), c_int(1), here) == INVALID_VALUE
    emulator.call("cudaFree", device)
