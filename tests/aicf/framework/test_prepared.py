"""Calls on the cuda backend that were made before: the same results, nothing decided again, and no array confused with another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicf.functional as F
from aicf import Tensor
from aicf.backends import find_backend
from aicf.backends.cuda import CudaBackend
from aicf.backends.frozen import FrozenCalls
from aicf.errors import LaunchError
from aicf.ops.extension import load_extension
from aicf.opset import find_op
from aicf.opset.filled import fill
from aicf.tensor import make_scalar
from device import Device


@pytest.fixture
def cuda(device: Device) -> CudaBackend:
    backend = find_backend("cuda")
    assert isinstance(backend, CudaBackend)
    backend._prepared.clear()
    return backend


def draw(cuda: CudaBackend, *shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), backend=cuda)


def forbid_deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a call that was made before was decided again")

    monkeypatch.setattr(CudaBackend, "call_traced", refuse)
    monkeypatch.setattr(FrozenCalls, "find", refuse)


def test_a_repeated_layer_is_one_launch_with_the_same_bits(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, bias = draw(cuda, 2, 8, 16), draw(cuda, 12, 16), draw(cuda, 12)
    first = F.linear(x, w, bias)
    forbid_deciding(monkeypatch)
    again = F.linear(x, w, bias)
    other = F.linear(draw(cuda, 2, 8, 16, seed=1), w, bias)
    assert again.shape == (2, 8, 12)
    np.testing.assert_array_equal(again.numpy(), first.numpy())
    np.testing.assert_allclose(other.numpy(), draw(cuda, 2, 8, 16, seed=1).numpy() @ w.numpy().T + bias.numpy(), rtol=1e-4, atol=1e-5)
    assert again.data.queued_address != first.data.queued_address


def test_a_number_is_brought_to_the_device_once(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(cuda, 5, 7)
    for _ in range(2):
        np.testing.assert_array_equal((x * 2.5).numpy(), x.numpy() * np.float32(2.5))
    first = make_scalar(2.5, "float32", cuda)
    other = make_scalar(7.5, "float32", cuda)
    monkeypatch.setattr(CudaBackend, "from_host", lambda *_: pytest.fail("a number was uploaded again"))
    cuda.copy_into(first.data, other.data)  # whoever gets one may overwrite it
    forbid_deciding(monkeypatch)
    np.testing.assert_array_equal((x * 2.5).numpy(), x.numpy() * np.float32(2.5))


def test_an_array_given_twice_is_two_inputs(cuda: CudaBackend) -> None:
    x, y = draw(cuda, 16, 16), draw(cuda, 16, 16, seed=1)
    F.linear(x, x)
    x * x
    np.testing.assert_allclose(F.linear(x, y).numpy(), x.numpy() @ y.numpy().T, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal((x * y).numpy(), x.numpy() * y.numpy())


def test_a_repeated_view_shares_its_input_and_a_copy_does_not(cuda: CudaBackend) -> None:
    x, y = draw(cuda, 4, 6), draw(cuda, 4, 6, seed=1)
    for each in (x, y):
        assert each.reshape(6, 4).data.queued_address == each.data.queued_address
    for each in (x, y):  # nothing to broadcast: what comes out is an array of its own
        (made,) = cuda.op_call("Broadcast", (each.data,), find_op("Broadcast").fill({"shape": (4, 6)}))
        assert made.queued_address != each.data.queued_address
        np.testing.assert_array_equal(made.copy_to_host(), each.numpy())


def test_a_view_into_a_buffer_keeps_its_place(cuda: CudaBackend) -> None:
    whole = draw(cuda, 64).data
    for first in (4, 8):
        part = whole.buffer.view((2, 4), np.float32, offset_bytes=4 * first)
        (made,) = cuda.op_call("Reshape", (part,), {"shape": (8,)})
        np.testing.assert_array_equal(made.copy_to_host(), whole.copy_to_host()[first : first + 8])


def test_constants_are_arrays_of_their_own(cuda: CudaBackend) -> None:
    first, again = (Tensor(2.0, backend=cuda) * 1.0 for _ in range(2))
    with_zero = [cuda.op_call("Full", (), find_op("Full").fill({"value": v, "dtype": "float32", "shape": ()}))[0] for v in (0.0, -0.0)]
    assert first.data.queued_address != again.data.queued_address
    assert [np.signbit(each.copy_to_host()).item() for each in with_zero] == [False, True]


@pytest.mark.slow
def test_clones_and_gradients_share_no_memory(cuda: CudaBackend) -> None:
    for x in (draw(cuda, 2, 3), Tensor(np.arange(6), backend=cuda)):
        expected = x.numpy().copy()
        for _ in range(2):
            y = x.clone()
            cuda.copy_into(y.data, (x.clone() if x.dtype != "float32" else x * 0.0).data)
            np.testing.assert_array_equal(x.numpy(), expected)
            assert y.data.queued_address != x.data.queued_address
    for _ in range(2):
        a, b = draw(cuda, 2, 3).require_grad(), draw(cuda, 2, 3, seed=1).require_grad()
        (a + b).sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        a.grad.mul_(2.0)
        assert (a.grad.numpy()[0, 0], b.grad.numpy()[0, 0]) == (2, 1)


def test_attributes_are_told_apart() -> None:
    full = find_op("Full")
    made = [fill(full, {"value": v, "dtype": "float32", "shape": ()}) for v in (0.0, -0.0, 0, False, 0.0)]
    assert len({each.number for each in made}) == 4
    assert made[0] is made[-1]
    with pytest.raises(TypeError, match="no attribute 'wrong'"):
        fill(full, {"wrong": 1})


def test_what_lies_where_a_kernel_cannot_take_it_is_copied_and_the_call_is_kept(cuda: CudaBackend) -> None:
    w, bias = draw(cuda, 16, 16), draw(cuda, 16)
    x = draw(cuda, 16, 16)
    expected = F.linear(x, w, bias).numpy()
    wide = cuda._device.allocate(16 * 16 * 4 + 4)
    odd = wide.view((16, 16), np.float32, offset_bytes=4)
    odd.copy_from_host(x.numpy())
    (kept,) = cuda._prepared.values()
    for each in (Tensor.wrap(odd, cuda), x, Tensor.wrap(odd, cuda)):
        np.testing.assert_array_equal(F.linear(each, w, bias).numpy(), expected)
    assert list(cuda._prepared.values()) == [kept]
    np.testing.assert_array_equal(odd.copy_to_host(), x.numpy())


def test_a_refused_kernel_is_forgotten(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = draw(cuda, 16, 16), draw(cuda, 16, 16)
    F.linear(x, w)
    assert cuda._prepared
    (first,) = cuda._prepared.values()
    monkeypatch.setattr(FrozenCalls, "num_refused", property(lambda _: 10**6))
    F.linear(x, w)
    monkeypatch.undo()
    assert first not in cuda._prepared.values()


@pytest.mark.parametrize(("call", "op"), [(F.linear, "gemm_bias_act"), (F.layer_norm, "layernorm")], ids=["one output", "several"])
def test_a_launch_that_refuses_says_why(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch, call: Any, op: str) -> None:
    x, w = draw(cuda, 16, 16), draw(cuda, 16, 16) if call is F.linear else draw(cuda, 16)

    class Refuser:
        def __init__(self, *_: Any) -> None: ...

        def __call__(self, *_: Any) -> tuple[int, bytes]:
            return 98, b"no such kernel"

    monkeypatch.setattr(load_extension(), "Launcher", Refuser)
    call(x, w)
    with pytest.raises(LaunchError, match=rf"{op}/.*: no such kernel") as caught:
        call(x, w)
    assert caught.value.cuda_code == 98
    cuda._prepared.clear()


def test_what_is_kept_is_bounded(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.backends.cuda._MAX_PREPARED", 3)
    for n in range(1, 9):
        draw(cuda, n).reshape(1, n)
        assert 1 <= len(cuda._prepared) <= 3


@pytest.mark.parametrize(
    "rows",
    [((0, -1, 0, 1),), ((0, 0, 0, 0),), ((9, 0, 0, 1),), ((-1, 0, 0, 1),)],
    ids=["index", "step", "behind the end", "before the start"],
)
def test_a_launcher_refuses_places_that_are_not_there(rows: Any) -> None:
    with pytest.raises(ValueError, match="a launcher's pointer"):
        load_extension().Launcher(1, bytes(16), rows)


def test_a_launcher_refuses_what_it_cannot_hold(stub: Any) -> None:
    with pytest.raises(ValueError, match="4096 bytes"):
        load_extension().Launcher(stub.address, bytes(4097), ())
    launcher = load_extension().Launcher(stub.address, bytes(40), ((0, 1, 8, 16),))
    zero, one, other = (SimpleNamespace(queued_address=address) for address in (0, 16, 24))
    with pytest.raises(IndexError, match="too few"):
        launcher([zero], 0)
    with pytest.raises(TypeError, match="list of arrays"):
        launcher((zero, one), 0)
    with pytest.raises(AttributeError, match="queued_address"):
        launcher([zero, None], 0)
    assert launcher([zero, one], 0) is False  # 24 is no multiple of 16
    assert launcher([zero, other], 48) is True
    assert (stub.last.x, stub.last.workspace) == (32, 48)
