"""Outputs made in C through PyTorch's interface, on fakes that offer it: what is made, where work goes, and who is not believed."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aicf.errors import LaunchError
from aicf.ops.extension import load_extension
from tests.aicf.lean_stub import FakeSpace, Params, Stub, compile_c, load_fakes, register_fakes

LIES = {
    "shape": 1,
    "strides": 2,
    "dtype": 3,
    "type": 4,
    "address": 5,
    "nothing made": 6,
    "no memory": 7,
    "no description": 8,
}


def refuse(*values: Any) -> Any:
    raise MemoryError("PyTorch's own words")


def test_outputs_are_made_without_python_and_given_back(fakes: FakeSpace, stub: Stub) -> None:
    caller = stub.make_caller(refuse, n=6, shape=(2, 3), dtype="float32")
    x = fakes.make((2, 3))
    before = fakes.fakes.count_alive()
    y = caller(x)
    assert type(y) is fakes.kind and y.shape == (2, 3) and y.address == stub.last.y != x.address
    assert not y.requires_grad and fakes.fakes.count_alive() == before + 1
    for _ in range(100):
        y = caller(x)
    assert fakes.fakes.count_alive() == before + 1 and len(stub.resolved) == 1


def test_several_outputs_and_a_workspace_without_python(fakes: FakeSpace, stub: Stub) -> None:
    caller = stub.make_caller(refuse, outputs=2, workspace=refuse, shape=(2, 3), dtype="float32")
    x = fakes.make((4, 4))
    before = fakes.fakes.count_alive()
    made = caller(x)
    assert [type(each) for each in made] == [fakes.kind] * 2 and made[0].address != made[1].address == stub.last.y
    assert stub.last.workspace not in (None, made[0].address, made[1].address)
    assert fakes.fakes.count_alive() == before + 2


def test_work_goes_to_the_stream_that_is_current_at_each_call(fakes: FakeSpace, stub: Stub) -> None:
    x = fakes.make((2, 3))
    for caller in (stub.make_caller(refuse, shape=(2, 3), dtype="float32"), stub.make_caller(fakes.make_like)):
        for stream in (0x10, 0, 0x20):
            fakes.fakes.set_stream(stream)
            caller(x)
            assert (stub.last.stream or 0) == stream
        assert caller.count_plans() == 1


def test_a_plan_is_for_the_device_that_was_current(fakes: FakeSpace, stub: Stub) -> None:
    caller = stub.make_caller(refuse, shape=(2, 3), dtype="float32")
    x = fakes.make((2, 3))
    for count, current in enumerate((0, 1, 0, 1)):
        stub.set_state("device", current)
        caller(x)
        assert len(stub.resolved) == min(count + 1, 2)


def test_what_cannot_be_made_is_asked_of_python_which_says_why(fakes: FakeSpace, stub: Stub) -> None:
    x, launches = fakes.make((2, 3)), stub.num_launches
    caller = stub.make_caller(refuse, workspace=refuse, shape=(2, 3), dtype="float32")
    for lie in ("nothing made", "no memory"):
        fakes.fakes.tell(LIES[lie])
        with pytest.raises(MemoryError, match="PyTorch's own words"):
            caller(x)
    assert stub.num_launches == launches
    made = stub.make_caller(fakes.make_like, n=6, shape=(2, 3), dtype="float32")(x)
    assert made.address == stub.last.y and stub.num_launches == launches + 1


def test_a_mode_that_makes_something_else_has_the_call_referred(fakes: FakeSpace, stub: Stub) -> None:
    launches = stub.num_launches
    fakes.fakes.tell(LIES["no memory"])
    assert stub.make_caller(lambda first: object(), shape=(2, 3), dtype="float32")(fakes.make((2, 3))) == "referred"
    assert stub.num_launches == launches


def test_a_tensor_that_has_no_description_is_referred(fakes: FakeSpace, stub: Stub) -> None:
    x = fakes.make((2, 3))
    fakes.fakes.tell(LIES["no description"])
    assert stub.make_caller(refuse)(x) == "referred"
    assert stub.resolved == []


def test_a_kernel_that_refuses_leaves_nothing_behind(fakes: FakeSpace, stub: Stub) -> None:
    with pytest.raises(LaunchError, match=r"n = -1: too few"):
        stub.make_caller(refuse, n=-1, outputs=2, shape=(2, 3), dtype="float32")(fakes.make((2, 3)))


def test_calls_are_recorded_where_a_tensor_asks_for_it_and_recording_is_on(fakes: FakeSpace, stub: Stub) -> None:
    caller = stub.make_caller(refuse, shape=(2, 3), dtype="float32")
    x, w = fakes.make((2, 3)), fakes.make((2, 3))
    w.requires_grad = True
    assert caller(x, w) == "referred"
    assert caller(w) == "referred"
    assert type(caller(x)) is fakes.kind
    fakes.fakes.set_grad_enabled(False)
    assert type(caller(x, w)) is fakes.kind
    fakes.fakes.set_grad_enabled(True)
    assert caller(x, w) == "referred"


def test_arrays_that_no_plan_can_stand_for_are_referred_each_time(fakes: FakeSpace, stub: Stub) -> None:
    asked = []

    def resolve(*values: Any) -> None:
        asked.append(values)

    caller = stub.make_caller(refuse, resolve=resolve)
    for _ in range(3):
        assert caller(fakes.make((2, 3))) == "referred"
    assert len(asked) == 1


@pytest.mark.parametrize("lie", list(LIES))
def test_an_interface_whose_first_tensor_is_not_what_was_asked_for_is_not_used(
    lie: str, fake_library: Path, tmp_path: Path, stub: Stub
) -> None:
    fakes = load_fakes(fake_library, tmp_path)
    fakes.tell(LIES[lie])
    kind = register_fakes(fakes)
    fakes.tell(0)
    assert not load_extension().makes_tensors(kind)
    made = stub.make_caller(lambda first: kind(2, 3), shape=(2, 3), dtype="float32")(kind(2, 3))
    assert type(made) is kind and made.address == stub.last.y
    fakes.set_grad_enabled(False)
    recorded = kind(2, 3)
    recorded.requires_grad = True
    assert type(stub.make_caller(lambda first: kind(2, 3))(recorded)) is kind


def test_an_honest_interface_is_used_and_one_without_a_function_is_not(fakes: FakeSpace, tmp_path: Path, stub: Stub) -> None:
    assert load_extension().makes_tensors(fakes.kind)
    other = load_fakes(compile_c("fake_tensors.c", tmp_path, "-DWITHOUT_WRAP"), tmp_path / "copy")
    kind = register_fakes(other)
    assert not load_extension().makes_tensors(kind)
    assert type(stub.make_caller(lambda first: kind(2, 3), shape=(2, 3), dtype="float32")(kind(2, 3))) is kind


def test_plans_may_be_dropped_while_one_is_in_use(fakes: FakeSpace, stub: Stub) -> None:
    """A launch lets go of the GIL; beyond 4096 plans all are dropped."""
    waiting = [True]

    def resolve(*values: Any) -> Any:
        n = -2 if waiting.pop() else 0
        waiting.append(False)
        return stub.address, bytes(Params(n=n)), (0, -1), ((8, (2, 3), "float32", refuse, True, ()),) * 2

    caller, x, made = stub.make_caller(refuse, resolve=resolve), fakes.make((2, 3)), []
    launches = stub.num_launches
    thread = threading.Thread(target=lambda: made.append(caller(x)))
    thread.start()
    while stub.num_launches == launches:
        time.sleep(0.001)
    for columns in range(4, 4101):
        caller(fakes.make((1, columns)))
    stub.set_state("go_on", 1)
    thread.join()
    assert caller.count_plans() < 4096
    assert [each.shape for each in made[0]] == [(2, 3)] * 2
    del made[:]


NAMES: list[tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = [
    ((1,), {}, (1, None, "none", False)),
    ((1, 2), {"keep": True}, (1, 2, "none", True)),
    ((), {"keep": True, "x": 1, "act": "relu", "w": 3}, (1, 3, "relu", True)),
    ((1, 2), {str(b"act", "ascii"): "relu"}, (1, 2, "relu", False)),
]


@pytest.mark.parametrize(("values", "names", "expected"), NAMES)
def test_arguments_by_name_are_put_in_their_places(values: Any, names: Any, expected: Any, stub: Stub) -> None:
    assert stub.make_caller(refuse)(*values, **names) == "referred"
    assert stub.referred == [expected]


@pytest.mark.parametrize("names", [{}, {"w": 1}, {"x": 1, "z": 2}])
def test_arguments_that_are_missing_or_unknown_are_an_error(names: Any, stub: Stub) -> None:
    with pytest.raises(TypeError, match=r"by position or by name, once each"):
        stub.make_caller(refuse)(**names)
    with pytest.raises(TypeError, match=r"by position or by name, once each"):
        stub.make_caller(refuse)(1, x=2)


class Attributes:
    """An array as CuPy has them: its memory is another object's, and strides are in bytes."""

    def __init__(self, address: int, device: int = 0) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=device)
        self.shape, self.strides, self.dtype = (2, 3), (12, 4), np.dtype("float32")


@pytest.mark.parametrize("name", ["intptr_t (void)", "int (void)"])
def test_arrays_with_attributes_have_their_holders_address_and_the_stream_that_is_current(name: str, stub: Stub) -> None:
    """The stream comes from a C function where its capsule says that it is one of that type, else from Python's."""
    kind = type("Array", (Attributes,), {})
    make_capsule = ctypes.pythonapi.PyCapsule_New
    make_capsule.restype, make_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    text = ctypes.create_string_buffer(name.encode())  # lives as long as the capsule is looked at
    capsule = make_capsule(ctypes.cast(stub.library.get_stream, ctypes.c_void_p), text, None)
    names = {"holder": "data", "address": "ptr", "device": "device_id", "shape": "shape", "strides": "strides", "dtype": "dtype"}
    assert load_extension().register_type(kind, **names, current_stream=lambda: 0x33, stream_function=capsule)
    x, out = kind(0x1000), kind((1 << 63) + 0x2000)
    caller = stub.make_caller(lambda first: out)
    for stream in (0x11, 0x22):
        stub.set_state("stream", stream)
        assert caller(x) is out
        assert (stub.last.x, stub.last.y) == (0x1000, (1 << 63) + 0x2000)
        assert stub.last.stream == (stream if name == "intptr_t (void)" else 0x33)
    assert caller.count_plans() == 1
    caller(kind(0x1000, device=1))
    assert caller.count_plans() == 2
