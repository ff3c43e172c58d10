"""The lean path by itself, its launches made by a function on the host: what it puts where."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from aicf.errors import LaunchError
from aicf.ops.extension import load_extension
from device import Device
from tests.aicf.lean_stub import DeviceSpace, Stub, TorchSpace


@pytest.fixture(params=["device", "fakes", "torch"])
def space(request: pytest.FixtureRequest, device: Device) -> Any:
    if request.param == "torch":
        return TorchSpace(request.getfixturevalue("torch"))
    return request.getfixturevalue("fakes") if request.param == "fakes" else DeviceSpace(device)


def test_addresses_go_where_the_plan_says(space: Any, stub: Stub) -> None:
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


def test_whatever_was_checked_makes_another_plan(space: Any, stub: Stub) -> None:
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


def test_a_thread_is_bound_to_the_device_before_its_first_launch_and_once(space: Any, stub: Stub) -> None:
    caller, x = stub.make_caller(space.make_like), space.make((3, 4))
    caller(x, None, "none", False)
    before = stub.num_bound

    def call_twice() -> list[int]:
        return [caller(x, None, "none", False) is not None and stub.num_bound - before for _ in range(2)]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call_twice).result() == [1, 1]
        stub.set_state("device", 1)
        assert pool.submit(call_twice).result() == [2, 2]
        stub.set_state("device", 99)  # which cannot be had
        assert pool.submit(caller, x, None, "none", False).result() == "referred"


def test_several_outputs_are_a_tuple_and_a_workspace_is_no_output(space: Any, stub: Stub) -> None:
    x = space.make((4, 4))
    y, z = stub.make_caller(space.make_like, outputs=2)(x, None, "none", False)
    assert y.shape == z.shape and stub.last.y == space.find_address(z)
    assert stub.last.workspace is None
    made = stub.make_caller(space.make_like, workspace=lambda size: space.make((1, size)))(x, None, "none", False)
    assert made.shape == (4, 4) and stub.last.workspace


def test_a_kernel_that_refuses_is_an_error_with_its_reason(space: Any, stub: Stub) -> None:
    with pytest.raises(LaunchError, match=r"n = -1: too few"):
        stub.make_caller(space.make_like, n=-1)(space.make((4, 4)), None, "none", False)


def test_what_no_plan_can_stand_for_is_referred(space: Any, stub: Stub) -> None:
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


def test_an_error_on_the_way_is_the_callers(space: Any, stub: Stub) -> None:
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


def test_objects_are_not_leaked(space: Any, stub: Stub) -> None:
    caller = stub.make_caller(space.make_like)
    x = space.make((2, 2))
    y = caller(x, None, "none", False)
    before = sys.getrefcount(x), sys.getrefcount("relu")
    for _ in range(1000):
        y = caller(x, None, "none", False)
    assert sys.getrefcount(y) == 2
    assert all(abs(now - then) < 5 for now, then in zip((sys.getrefcount(x), sys.getrefcount("relu")), before, strict=True))
