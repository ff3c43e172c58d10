"""Several emulated devices: what belongs to one of them, copies between them, and peer access."""

from __future__ import annotations

from pathlib import Path

from .cuda_program import build_program, run_case
from .cuda_runtime import run_isolated

HEAD = """
INVALID_VALUE, INVALID_DEVICE, INVALID_HANDLE, ILLEGAL_ADDRESS, ALREADY_ENABLED, NOT_ENABLED = 1, 101, 400, 700, 704, 705
class Attributes(ctypes.Structure):
    _fields_ = (("type", c_int), ("device", c_int), ("device_pointer", c_void_p), ("host_pointer", c_void_p), ("more", ctypes.c_long * 8))
def number(name, *args):
    out = c_int(-1)
    cuda.call(name, byref(out), *args)
    return out.value
def on(device):
    cuda.call("cudaSetDevice", c_int(device))
def attributes(address):
    out = Attributes()
    cuda.call("cudaPointerGetAttributes", byref(out), address)
    return out
def word_on(device, value):
    on(device)
    return cuda.alloc(np.array([value], np.uint32))
def kinds():
    return [report["kind"] for report in cuda.reports()]
def arguments(address, value):
    return Args(ctypes.c_uint64(address), ctypes.c_uint32(value))
library = cuda.load(PTX)
put, add = cuda.kernel(library, "put"), cuda.kernel(library, "add")
"""


def run(library: Path, body: str, devices: int = 4) -> None:
    done = run_isolated(library, HEAD + body, AICF_EMULATED_DEVICES=str(devices), AICF_EMULATED_CHECKS="all")
    assert done.returncode == 0, done.stdout + done.stderr


def test_devices_are_counted_chosen_and_named(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
assert number("cudaGetDeviceCount") == 4
assert cuda.code("cudaSetDevice", c_int(4)) == INVALID_DEVICE and cuda.code("cudaSetDevice", c_int(-1)) == INVALID_DEVICE
on(2)
assert number("cudaGetDevice") == 2
import threading
found = []
thread = threading.Thread(target=lambda: found.append(number("cudaGetDevice")))  # each thread has its own, and begins with 0
thread.start(); thread.join()
assert found == [0]
text = ctypes.create_string_buffer(32)
cuda.call("cudaDeviceGetPCIBusId", text, c_int(32), c_int(3))
assert number("cudaDeviceGetByPCIBusId", text) == 3
""",
    )


def test_one_device_is_the_default(emulator_library: Path) -> None:
    run(emulator_library, "assert number('cudaGetDeviceCount') == 1 and cuda.code('cudaSetDevice', c_int(1)) == INVALID_DEVICE", 1)


def test_memory_streams_and_events_belong_to_a_device(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
first, second = word_on(0, 1), word_on(1, 2)
assert (attributes(first).device, attributes(second).device) == (0, 1)
free, total = c_size_t(), c_size_t()
on(3)
cuda.call("cudaMemGetInfo", byref(free), byref(total))
assert free.value == total.value  # nothing of this one is used
on(1)
stream, event = cuda.stream(), cuda.event()
owner = c_int(-1)
cuda.call("cudaStreamGetDevice", stream, byref(owner))
assert owner.value == 1
assert cuda.launch(add, arguments(second, 5), stream) == 0
cuda.call("cudaEventRecord", event, stream)
on(0)
# Waits and copies may name another device's stream; launches and records may not.
cuda.call("cudaStreamSynchronize", stream)
cuda.call("cudaStreamWaitEvent", cuda.stream(), event, c_uint(0))
cuda.call("cudaMemcpyAsync", first, second, 4, c_int(COPY_DEFAULT), stream)
assert kinds() == []
assert cuda.launch(add, arguments(first, 5), stream) == INVALID_HANDLE
assert cuda.code("cudaEventRecord", event, 0) == INVALID_HANDLE
assert kinds() == ["wrong_device", "wrong_device"]
assert cuda.read(first)[0] == 7
cuda.call("cudaFree", second)  # whatever device is current
""",
    )


def test_kernels_reach_peers_only_with_peer_access(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
there = word_on(1, 10)
on(0)
assert number("cudaDeviceCanAccessPeer", c_int(0), c_int(1)) == 1 and number("cudaDeviceCanAccessPeer", c_int(1), c_int(1)) == 0
assert cuda.code("cudaDeviceEnablePeerAccess", c_int(0), c_uint(0)) == INVALID_DEVICE
assert cuda.code("cudaDeviceDisablePeerAccess", c_int(1)) == NOT_ENABLED
cuda.call("cudaDeviceEnablePeerAccess", c_int(1), c_uint(0))
assert cuda.code("cudaDeviceEnablePeerAccess", c_int(1), c_uint(0)) == ALREADY_ENABLED
assert cuda.launch(add, arguments(there, 1)) == 0
cuda.call("cudaDeviceSynchronize")
assert kinds() == [] and cuda.read(there)[0] == 11
cuda.call("cudaDeviceDisablePeerAccess", c_int(1))
cuda.launch(add, arguments(there, 1))
assert cuda.code("cudaDeviceSynchronize") == ILLEGAL_ADDRESS
reports = cuda.reports()
assert [report["kind"] for report in reports] == ["peer_access", "peer_access"]  # the load and the store
assert "which belongs to device 1" in reports[0]["text"]
""",
    )


def test_host_memory_is_for_all_devices(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
on(1)
pinned, managed = cuda.made("cudaMallocHost", 4), cuda.made("cudaMallocManaged", 4, c_uint(1))
own = np.zeros(1, np.uint32)
cuda.call("cudaHostRegister", own.ctypes.data, 4, c_uint(2))
on(3)
for address in (pinned, managed, own.ctypes.data):
    assert cuda.launch(put, arguments(address, 42)) == 0
    cuda.call("cudaDeviceSynchronize")
    assert ctypes.c_uint32.from_address(address).value == 42
assert kinds() == []
""",
    )


def test_copies_between_devices_name_the_right_ones(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
first, second = word_on(0, 7), word_on(2, 8)
cuda.call("cudaMemcpyPeer", second, c_int(2), first, c_int(0), 4)
cuda.call("cudaMemcpyPeerAsync", first, c_int(0), second, c_int(2), 4, 0)
assert cuda.read(second)[0] == 7 and kinds() == []
assert cuda.code("cudaMemcpyPeer", second, c_int(1), first, c_int(0), 4) == INVALID_VALUE
assert kinds() == ["wrong_device"]
assert cuda.code("cudaMemcpyPeer", second, c_int(9), first, c_int(0), 4) == INVALID_DEVICE
""",
    )


def test_a_pool_lets_other_devices_in(emulator_library: Path) -> None:
    run(
        emulator_library,
        """
class Access(ctypes.Structure):
    _fields_ = (("type", c_int), ("device", c_int), ("flags", c_int))
on(1)
stream = cuda.stream()
pool = cuda.made("cudaDeviceGetDefaultMemPool", c_int(1))
address = cuda.made("cudaMallocAsync", 4, stream)
cuda.call("cudaMemsetAsync", address, c_int(0), 4, stream)
cuda.call("cudaStreamSynchronize", stream)
assert attributes(address).device == 1
cuda.call("cudaMemPoolSetAccess", pool, byref(Access(1, 0, 3)), c_size_t(1))
on(0)
assert cuda.launch(add, arguments(address, 3)) == 0
cuda.call("cudaDeviceSynchronize")
assert kinds() == [] and cuda.read(address)[0] == 3
on(2)
cuda.launch(add, arguments(address, 3))  # not this one
assert cuda.code("cudaDeviceSynchronize") == ILLEGAL_ADDRESS
assert set(kinds()) == {"peer_access"}
""",
    )


def test_variables_are_each_devices_own_but_for_managed_ones(tmp_path: Path, emulator_library: Path) -> None:
    program = build_program(Path(__file__).with_name("runtime_program.cu"), tmp_path)
    outcome = run_case(program, emulator_library, "devices", devices=2, leak_check=1)
    assert outcome.passed and outcome.findings == [], outcome.output + outcome.errors
    assert run_case(program, emulator_library, "devices").exit_code == 1  # there is one only
