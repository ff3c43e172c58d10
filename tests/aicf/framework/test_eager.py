"""Tensors, autograd and modes as users meet them: what works, and what each mistake is told."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn
from aicf import functional as F
from aicf.backends import find_backend
from aicf.backends.numpy import NumpyBackend
from aicf.errors import GradientError
from aicf.tensor import apply

HERE = Path(__file__).name


def leaf(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape), requires_grad=True)


def test_a_graph_is_what_ran() -> None:
    x = Tensor([1.0, -2.0, 3.0], requires_grad=True)
    total = Tensor(0.0)
    for i in range(3):
        total = total + (x[i] * 2.0 if x[i].item() > 0 else x[i] * x[i])
    total.backward()
    assert x.grad is not None
    assert x.grad.numpy().tolist() == [2.0, -4.0, 2.0]


def test_gradients_add_up_until_they_are_zeroed() -> None:
    x = leaf(3)
    for _ in range(2):
        (x * 3.0).sum().backward()
    assert x.grad is not None
    assert x.grad.numpy().tolist() == [6.0] * 3


def test_a_value_that_is_used_twice_gets_both_gradients() -> None:
    x = Tensor(3.0, requires_grad=True)
    y = x * x
    (y + y * x).backward()
    assert x.grad is not None
    assert x.grad.item() == 2 * 3.0 + 3 * 9.0


def test_a_freed_graph_says_what_to_do() -> None:
    y = (leaf(3) * 2.0).sum()
    y.backward()
    with pytest.raises(GradientError, match=rf"{HERE}:\d+: the graph of Reduce was freed .* retain_graph=True"):
        y.backward()


def test_a_retained_graph_runs_again() -> None:
    x = leaf(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), 4.0 * x.numpy())


def test_a_write_to_what_the_backward_pass_reads_raises_with_the_line() -> None:
    x, w = leaf(3), Tensor(np.ones(3))
    y = (x * w).sum()
    w.add_(1.0)
    with pytest.raises(GradientError, match=rf"{HERE}:\d+: Elementwise needs its x1 .* changed in place .*x\.clone\(\)"):
        y.backward()


def test_a_write_through_a_view_is_seen() -> None:
    x, w = leaf(3), Tensor(np.ones((3, 1)))
    y = (x * w.reshape(3)).sum()
    w.zero_()
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_a_write_to_what_nobody_reads_is_fine() -> None:
    x, w = leaf(3), Tensor(np.ones(3))
    y = (x + w).sum()
    w.zero_()
    y.backward()


def test_a_leaf_that_needs_a_gradient_is_not_written_to() -> None:
    x = leaf(3)
    with pytest.raises(GradientError, match=r"aicf\.no_grad"):
        x.add_(1.0)
    with aicf.no_grad():
        x.add_(1.0)


def test_nothing_is_recorded_without_gradients() -> None:
    x = leaf(3)
    with aicf.no_grad():
        assert (x * 2.0).creator is None
    with pytest.raises(GradientError, match="needs no gradient"):
        x.detach().sum().backward()


def test_only_scalars_are_differentiated_without_weights() -> None:
    x = leaf(2, 2)
    with pytest.raises(GradientError, match=r"needs a scalar or a gradient, got shape \(2, 2\)"):
        (x * 2.0).backward()
    (x * 2.0).backward(Tensor(np.full((2, 2), 0.5)))
    assert x.grad is not None
    assert x.grad.numpy().tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_long_chain_is_no_recursion() -> None:
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(20000):
        y = y + 1.0
    y.backward()
    assert x.grad is not None
    assert x.grad.item() == 1.0


def test_the_backward_pass_lets_go_of_what_it_kept() -> None:
    x = leaf(3)
    y = F.exp(x)
    seen = weakref.ref(y)
    total = y.sum()
    total.backward()
    del y
    assert seen() is None, gc.get_referrers(seen())


def test_grad_of_grad() -> None:
    third = aicf.grad(aicf.grad(aicf.grad(lambda x: x * x * x * x)))
    assert third(Tensor(2.0)).item() == 48.0


def test_grad_of_several_arguments_leaves_no_trace() -> None:
    x, y = leaf(3), leaf(3)
    dx, dy = aicf.grad(lambda a, b: (a * a * b).sum(), (0, 1))(x, y)
    np.testing.assert_allclose(dx.numpy(), 2 * x.numpy() * y.numpy())
    np.testing.assert_allclose(dy.numpy(), x.numpy() ** 2)
    assert x.grad is None
    assert y.grad is None


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Tensor([1.0]) + Tensor(np.ones(1)), TypeError, "cast"),
        (lambda: Tensor(np.ones((2, 3))) + Tensor(np.ones((4,))), ValueError, r"\(2, 3\) and \(4,\) do not broadcast"),
        (lambda: F.linear(Tensor(np.ones((2, 3))), Tensor(np.ones((4, 5)))), ValueError, r"x \[..., K\] and w \[N, K\]"),
        (lambda: Tensor([1, 2], requires_grad=True), TypeError, "int64 has no gradient"),
        (lambda: F.embedding(Tensor(np.ones((3, 2))), Tensor([3])), IndexError, r"index 3 is not in 0\.\.2"),
        (lambda: F.cross_entropy(Tensor(np.ones((2, 3))), Tensor([0, 7])), IndexError, r"index 7 is not in 0\.\.2"),
        (lambda: F.dropout(Tensor([1.0]), 1.0), ValueError, r"\[0, 1\)"),
        (lambda: Tensor(np.ones((2, 3))).reshape(4, -1), ValueError, "6 elements"),
        (lambda: Tensor(np.ones((2, 3)))[2], IndexError, "out of range"),
        (lambda: Tensor(np.ones((2, 3)))[::2], TypeError, "step 1"),
        (lambda: Tensor(np.ones(3)).sum(1), ValueError, "axis 1 is out of range"),
        (lambda: Tensor(np.ones(3)).item(), ValueError, "one element"),
        (lambda: aicf.set_backend("abacus"), ValueError, "there are: numpy, cuda"),
        (lambda: F.relu([1.0]), TypeError, "expected tensors, got list"),  # type: ignore[arg-type]
        (lambda: aicf.grad(lambda x: x * x)(3.0), TypeError, r"grad: argument 0: expected a tensor, got float; Tensor\(values\) makes one"),
        (lambda: aicf.grad(lambda x: 3.0)(leaf(2)), TypeError, "grad: the function's result: expected a tensor, got float"),
        (lambda: aicf.grad(lambda x: x, 1)(leaf(2)), TypeError, "argument 1 is to be differentiated, and 1 were given"),
        (lambda: aicf.grad(lambda x: x)(leaf(2)), GradientError, r"needs a scalar or a gradient, got shape \(2,\); reduce it"),
        (lambda: leaf(2).detach().sum().backward(), GradientError, r"made under no_grad\(\) or from x.detach\(\)"),
        (lambda: Tensor([1, 2]) * 1.5, TypeError, r"1.5 is not an integer, and the tensor is int64; cast it"),
        (lambda: Tensor([1, 2]) < 1.5, TypeError, r"1.5 is not an integer"),
        (lambda: Tensor([1.0, 2.0]) == np.ones(2), TypeError, r"got ndarray; Tensor\(values\) makes one"),
        (lambda: f"{Tensor([1.0, 2.0]):.3f}", ValueError, "one element"),
    ],
)
def test_a_mistake_is_named(make: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        make()  # type: ignore[operator]


def test_equality_is_by_element_and_keys_are_by_object() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 3.0])
    assert (x == y).numpy().tolist() == [True, False]
    assert (x != y).numpy().tolist() == [False, True]
    assert (x == 2.0).numpy().tolist() == [False, True]
    assert (2.0 - x == 1.0).numpy().tolist() == [True, False]
    assert (Tensor([1, 2]) == 2.0).numpy().tolist() == [False, True]
    assert (x == None) is False  # noqa: E711
    assert x != "x"
    assert {x: 1, y: 2}[x] == 1


def test_a_scalar_is_formatted_as_a_number() -> None:
    assert f"{Tensor(2.5):.2f} {Tensor(7):03d} {Tensor(1.5)}" == "2.50 007 Tensor(1.5, dtype=float32)"


def test_numpy_speaks_to_tensors() -> None:
    x = Tensor(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(np.asarray(x), x.numpy())
    np.testing.assert_array_equal(np.from_dlpack(x), x.numpy())
    assert isinstance(np.float64(2.0) * x, Tensor)
    assert repr(x) == "Tensor([[0., 1., 2.],\n        [3., 4., 5.]], dtype=float64)"
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1.0


def test_dropout_draws_by_counter() -> None:
    x = Tensor(np.ones(1000, np.float32))
    first = aicf.Generator(3)
    a, b = F.dropout(x, 0.25, generator=first), F.dropout(x, 0.25, generator=first)
    assert not np.array_equal(a.numpy(), b.numpy())
    again = aicf.Generator(3)
    again.load_state_dict({"seed": 3, "offset": 1})
    np.testing.assert_array_equal(F.dropout(x, 0.25, generator=again).numpy(), b.numpy())
    assert abs((a.numpy() == 0).mean() - 0.25) < 0.06
    assert F.dropout(x, 0.25, training=False) is x


def test_owner_paths_and_state() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2, bias=False)))
    assert [path for path, _ in model.named_parameters()] == ["0.weight", "0.bias", "2.0.weight", "2.0.bias", "2.1.weight"]
    other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2, bias=False)))
    other.load_state_dict(model.state_dict())
    x = Tensor(np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(model(x).numpy(), other(x).numpy())
    with pytest.raises(ValueError, match=r"missing 0\.weight; unknown nothing\.there"):
        other.load_state_dict({**{k: v for k, v in model.state_dict().items() if k != "0.weight"}, "nothing.there": 1})


def test_importing_the_package_is_light() -> None:
    heavy = ("torch", "cupy", "device", "safetensors")
    code = f"import sys, aicf; from aicf import nn, optim, functional; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_a_clone_is_memory_of_its_own(dtype: str) -> None:
    x = Tensor(np.array([1, 0, 1]), dtype=dtype)
    y = x.clone()
    x.copy_(Tensor(np.array([0, 1, 0]), dtype=dtype))
    assert (y.dtype, y.numpy().tolist()) == (dtype, [1, 0, 1])


def test_calls_know_the_users_line_whatever_they_go_through() -> None:
    x = Tensor(np.ones((2, 2)), requires_grad=True)
    line = sys._getframe().f_lineno
    made = [
        F.linear(x, x),
        x * 2.0,
        F.exp(x),
        nn.ReLU()(x),
        apply("Elementwise", (x,), function="exp")[0],
    ]
    sources = [each.creator.source for each in made if each.creator is not None]
    assert sources == [f"{__file__}:{line + 2 + i}" for i in range(len(made))]


def test_what_an_op_returns_as_it_came_is_memory_of_its_own() -> None:
    x = Tensor(np.arange(3))
    (y,) = apply("Cast", [x], dtype="int64")
    x.add_(1)
    assert y.numpy().tolist() == [0, 1, 2]


def test_gradients_of_two_leaves_share_no_memory() -> None:
    a, b = (Tensor(np.ones((2, 3)), requires_grad=True) for _ in range(2))
    seed = Tensor(np.full((2, 3), 3.0))
    (a + b).backward(seed)
    a.grad.mul_(2.0)
    assert (a.grad.numpy()[0, 0], b.grad.numpy()[0, 0], seed.numpy()[0, 0]) == (6, 3, 3)


@pytest.mark.parametrize("reduce", [Tensor.sum, Tensor.mean])
def test_a_gradient_that_was_broadcast_can_be_scaled_in_place(reduce: Callable[[Tensor], Tensor]) -> None:
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    reduce(x.reshape(3, 2)).backward()
    before = x.grad.numpy().copy()
    x.grad.mul_(2.0)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * before)


def test_threads_that_ask_for_a_backend_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.backends._opened", {})
    monkeypatch.setattr("aicf.backends.numpy.BACKEND", lambda: (time.sleep(0.05), NumpyBackend())[1])
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: find_backend("numpy"), range(4)))
    assert all(each is found[0] for each in found)
