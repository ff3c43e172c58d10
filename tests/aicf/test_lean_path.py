"""The lean path by itself, its launches made by a function on the host: what it puts where, and what it costs.

``pytest tests/aicf/test_lean_path.py --benchmark-enable`` measures a call without its launch; the aim is 3 us.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.building.native import load_extension
from aicf.errors import LaunchError
from device import Device


class Params(ctypes.Structure):
    _fields_ = [("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("n", ctypes.c_int64), ("workspace", ctypes.c_void_p)]


class Stub:
    """The launch function, and callers of one input, one optional input and one option on it."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.last_params.restype = ctypes.POINTER(Params)
        self.address = ctypes.cast(self.library.launch, ctypes.c_void_p).value
        self.resolved: list[tuple[Any, ...]] = []
        self.referred: list[tuple[Any, ...]] = []

    @property
    def last(self) -> Params:
        found: Params = self.library.last_params().contents
        return found

    def make_caller(self, allocate: Any, *, n: int = 0, outputs: int = 1, workspace: Any = None) -> Any:
        def resolve(*values: Any) -> Any:
            self.resolved.append(values)
            allocations = [(8, allocate, True, ()) for _ in range(outputs)]
            allocations += [(-1, workspace, False, (64,))] if workspace else []
            offsets = (0, -1 if values[1] is None else 24)
            return self.address, bytes(Params(n=n)), offsets, tuple(allocations)

        def refer(*values: Any) -> str:
            self.referred.append(values)
            return "referred"

        options = (("none", "relu"), (False, True))
        return load_extension().Caller(2, options, 16, resolve, refer, LaunchError)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stub") / "stub.so"
    source = Path(__file__).with_name("stub_launch.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(path)], check=True)
    return path


@pytest.fixture
def stub(library: Path) -> Stub:
    return Stub(library)


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
    known = load_extension().register_type(found.Tensor, is_tracked="requires_grad", is_tracking=found.is_grad_enabled)
    if not known:
        pytest.skip(f"PyTorch {found.__version__} has no __dlpack_c_exchange_api__: 2.10 does")
    return found


class Space:
    """Arrays of the device package, or PyTorch's, made alike."""

    def __init__(self, device: Device, torch: Any) -> None:
        self.device, self.torch = device, torch
        names = {"shape": "shape", "strides": "strides_bytes", "dtype": "dtype"}
        load_extension().register_type(type(device.empty((1,))), address_path=("address",), **names)

    def make(self, shape: tuple[int, int], *, offset: int = 0, padding: int = 0, dtype: str = "float32") -> Any:
        """Return an array of rows that are ``padding`` elements apart, ``offset`` elements behind an address that is a multiple of 256."""
        pitch = shape[1] + padding
        if self.torch is not None:
            kind = getattr(self.torch, dtype)
            flat = self.torch.zeros(shape[0] * pitch + offset + 64, dtype=kind)
            start = -flat.data_ptr() % 256 // flat.element_size() + offset
            return flat[start : start + shape[0] * pitch].view(shape[0], pitch)[:, : shape[1]]
        item = np.dtype(dtype).itemsize
        buffer = self.device.allocate((shape[0] * pitch + offset) * item)
        return buffer.view(shape, dtype, offset_bytes=offset * item, strides_bytes=(pitch * item, item))

    def make_like(self, first: Any) -> Any:
        """Return a new array of the same shape."""
        return self.torch.empty_like(first) if self.torch is not None else self.device.empty(first.shape)

    def find_address(self, array: Any) -> int:
        """Return where an array begins."""
        return int(array.data_ptr() if self.torch is not None else array.address)


@pytest.fixture(params=["device", "torch"])
def space(request: pytest.FixtureRequest, device: Device) -> Space:
    return Space(device, request.getfixturevalue("torch") if request.param == "torch" else None)


def test_addresses_go_where_the_plan_says(space: Space, stub: Stub) -> None:
    caller = stub.make_caller(space.make_like)
    for each in (space.make((3, 4)), space.make((3, 4))):
        y = caller(each, None, "none", False)
        assert space.find_address(y) != space.find_address(each)
        assert (stub.last.x, stub.last.y) == (space.find_address(each), space.find_address(y))
    assert len(stub.resolved) == 1 and caller.count_plans() == 1


def test_what_a_launch_writes_is_in_the_output(torch: Any, stub: Stub) -> None:
    caller = stub.make_caller(torch.empty_like, n=12)
    x = torch.randn(3, 4)
    assert torch.equal(caller(x, None, "none", False), x)
    assert torch.equal(caller(x * 2, None, "none", False), x * 2)


def test_whatever_was_checked_makes_another_plan(space: Space, stub: Stub) -> None:
    caller = stub.make_caller(space.make_like)
    x = space.make((4, 8))
    calls = [
        (x, None, "none", False),
        (space.make((8, 4)), None, "none", False),  # another shape
        (space.make((4, 8), padding=4), None, "none", False),  # another stride
        (space.make((4, 8), offset=1), None, "none", False),  # another address modulo 16
        (x, x, "none", False),  # an input that may be absent
        (x, None, "relu", False),  # an option
        (x, None, "none", True),
        (space.make((4, 8), dtype="float64"), None, "none", False),  # another dtype
        (space.make((4, 8), dtype="int32"), None, "none", False),
    ]
    for count, values in enumerate(calls, start=1):
        caller(*values)
        caller(*values)
        assert caller.count_plans() == len(stub.resolved) == count
    caller(space.make((4, 8), offset=4), None, str(b"none", "ascii"), False)  # 16 bytes on, an equal string: the first plan
    assert len(stub.resolved) == len(calls)


def test_several_outputs_are_a_tuple_and_a_workspace_is_no_output(space: Space, stub: Stub) -> None:
    x = space.make((4, 4))
    y, z = stub.make_caller(space.make_like, outputs=2)(x, None, "none", False)
    assert y.shape == z.shape and stub.last.y == space.find_address(z)
    assert stub.last.workspace is None
    made = stub.make_caller(space.make_like, workspace=lambda size: space.make((1, size)))(x, None, "none", False)
    assert made.shape == (4, 4) and stub.last.workspace


def test_a_kernel_that_refuses_is_an_error_with_its_reason(space: Space, stub: Stub) -> None:
    with pytest.raises(LaunchError, match=r"n = -1: too few"):
        stub.make_caller(space.make_like, n=-1)(space.make((4, 4)), None, "none", False)


def test_what_no_plan_can_stand_for_is_referred(space: Space, stub: Stub) -> None:
    caller = stub.make_caller(space.make_like)
    x, host = space.make((2, 2)), np.zeros((2, 2))
    for values in ((host, None, "none", False), (x, host, "none", False), (x, None, "tanh", False)):
        assert caller(*values) == "referred"
    assert stub.resolved == []


def test_calls_that_are_recorded_for_a_backward_pass_are_referred(torch: Any, stub: Stub) -> None:
    caller = stub.make_caller(torch.empty_like)
    recorded = torch.zeros(4, requires_grad=True)
    assert caller(recorded, None, "none", False) == "referred"
    with torch.no_grad():
        assert caller(recorded, None, "none", False).shape == (4,)
    assert len(stub.resolved) == 1


def test_an_error_on_the_way_is_the_callers(space: Space, stub: Stub) -> None:
    def fail(*values: Any) -> Any:
        raise MemoryError("no more")

    x = space.make((2, 2))
    for _ in range(2):
        with pytest.raises(MemoryError, match="no more"):
            stub.make_caller(fail)(x, None, "none", False)
    broken = load_extension().Caller(2, ((0,),), 16, fail, fail, LaunchError)
    with pytest.raises(MemoryError, match="no more"):
        broken(x, None, 0)
    assert broken.count_plans() == 0


def test_objects_are_not_leaked(space: Space, stub: Stub) -> None:
    caller = stub.make_caller(space.make_like)
    x = space.make((2, 2))
    y = caller(x, None, "none", False)
    before = sys.getrefcount(x), sys.getrefcount("relu")
    for _ in range(1000):
        y = caller(x, None, "none", False)
    assert sys.getrefcount(y) == 2
    assert all(abs(now - then) < 5 for now, then in zip((sys.getrefcount(x), sys.getrefcount("relu")), before, strict=True))


def test_cost_of_a_call_on_tensors(benchmark: Any, torch: Any, stub: Stub) -> None:
    make = torch.Tensor.new_empty_strided  # as aicf.ops.arrays has it

    a, w, bias = (torch.zeros(128, 128) for _ in range(3))

    def resolve(*values: Any) -> Any:
        return stub.address, bytes(Params()), (0, 24, 24), ((8, make, True, ((128, 128), (128, 1))),)

    caller = load_extension().Caller(3, (("none", "silu"), ("kn", "nk"), (False, True)), 16, resolve, resolve, LaunchError)
    assert benchmark(lambda: caller(a, w, bias, "silu", "nk", False)).shape == (128, 128)


def test_cost_of_a_call_on_device_arrays(benchmark: Any, device: Device, stub: Stub) -> None:
    space = Space(device, None)
    x, out = space.make((128, 128)), space.make((128, 128))
    caller = stub.make_caller(lambda first: out)
    assert benchmark(lambda: caller(x, None, "none", False)) is out
    assert (stub.last.x, stub.last.y) == (x.address, out.address)
