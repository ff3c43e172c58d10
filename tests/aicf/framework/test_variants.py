"""Programs called with other shapes: padded where rows are apart, compiled again where they are not, kept within bounds, and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import PlanError
from aicf.frontends.recording import record
from aicf.ir.rows import find_row_outputs
from aicf.opset import Type
from device import Device

RNG = np.random.default_rng(1)


def make_rows(count: int) -> np.ndarray:
    return RNG.normal(size=(count, 6)).astype(np.float32)


def make_mlp() -> nn.Module:
    aicf.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax())


class Call(nn.Module):
    """A function of a tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self.function = function
        self.table = nn.Parameter(np.arange(60.0, dtype=np.float32).reshape(10, 6))

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def check_rows(program: aicf.train.Program, model: nn.Module, count: int) -> None:
    x = make_rows(count)
    found = program(x)
    assert found.shape == (count, 3)
    # The same float64 sums in blocks of other sizes, rounded once each layer.
    np.testing.assert_allclose(found.numpy(), model(Tensor(x)).numpy(), rtol=1e-5, atol=1e-7)


def test_rows_are_padded_to_few_sizes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aicf.train")
    model = make_mlp()
    program = aicf.compile(model, (Tensor(make_rows(20)),))
    for count in (20, 17, 12, 11, 9, 16, 5, 33, 40, 64, 1, 2):
        check_rows(program, model, count)
    assert program.variants is not None
    # 17 rows are served by the 20 that there are; 12 to 9 by 16.
    assert set(program.variants.shapes) == {f"float32[{n},6]" for n in (16, 8, 64, 1, 2)}
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Sequential: compiled for float32[16,6]: float32[12,6] was called, padded from 12 to 16 rows"
    assert len(lines) == 5


def test_weights_are_shared_with_every_size() -> None:
    model = make_mlp()
    program = aicf.compile(model, (Tensor(make_rows(8)),))
    check_rows(program, model, 3)
    with aicf.no_grad():
        next(model.parameters()).mul_(-2.0)
    for count in (3, 8, 4):
        check_rows(program, model, count)


APART: dict[str, Callable[[Tensor], Any]] = {
    "a sum over rows": lambda x: x - x.mean(0, keep=True),
    "rows against rows": lambda x: x @ x.T,
    "turned": lambda x: x.T,
    "flattened": lambda x: x.reshape(-1),
    "one row": lambda x: x[0:1],
    "a number of Python": lambda x: x * (1.0 / x.shape[0]),
}


@pytest.mark.parametrize("name", APART)
def test_rows_that_are_not_apart_are_not_padded(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aicf.train")
    model = Call(APART[name])
    program = aicf.compile(model, (Tensor(make_rows(8)),))
    x = make_rows(5)
    np.testing.assert_allclose(program(x).numpy(), model(Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "compiled for float32[5,6]: float32[5,6] was called, whose rows cannot be padded: #" in line
    assert "test_variants.py:" in line


ROWS: dict[str, tuple[Callable[[Tensor], Any], bool]] = {
    "elementwise": (lambda x: F.relu(x * 2.0 + x.max(1, keep=True)), True),
    "softmax": (lambda x: F.softmax(x.reshape(4, 2, 3)), True),
    "batched product": (lambda x: x.reshape(4, 2, 3) @ x.reshape(4, 3, 2), True),
    "permuted behind rows": (lambda x: x.reshape(4, 2, 3).permute(0, 2, 1), True),
    "sliced behind rows": (lambda x: x[:, 1:3], True),
    "joined behind rows": (lambda x: F.concat([x, x], 1), True),
    "joined along rows": (lambda x: F.concat([x, x], 0), False),
    "permuted": (lambda x: x.reshape(4, 2, 3).permute(1, 0, 2), False),
    "softmax over rows": (lambda x: F.softmax(x.T), False),
    "split rows": (lambda x: x.reshape(2, 12), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_keeps_rows_apart_is_known(name: str) -> None:
    function, is_apart = ROWS[name]
    graph = record(lambda m, x: m(x), Call(function), {"x0": Type("float32", (4, 6))}, "g").graph
    found = find_row_outputs(graph, [graph.inputs[0][1].id])
    assert (found == [True]) is is_apart, found


def test_modes_are_those_of_the_first_compilation() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5, aicf.Generator(1)))
    program = aicf.compile(model.eval(), (Tensor(make_rows(8)),))
    model.train()
    x = make_rows(30)
    np.testing.assert_array_equal(program(x).numpy(), model.eval()(Tensor(x)).numpy())


def test_the_cache_is_bounded_and_says_what_it_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aicf.train")
    model = make_mlp()
    program = aicf.compile(model, (Tensor(make_rows(1)),), cache_plans=2)
    for count in (2, 4, 2, 8, 4):  # 4 was used longest ago when 8 comes
        check_rows(program, model, count)
    assert program.variants is not None
    assert program.variants.shapes == ["float32[8,6]", "float32[4,6]"]
    dropped = [r.getMessage().split(" for ")[1].split(",")[0] for r in caplog.records if "dropped the plan" in r.getMessage()]
    assert dropped == ["float32[4", "float32[2"]
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "compiled for float32[4,6]" in warning and "it was dropped before to keep within bounds: raise cache_plans" in warning


def test_the_cache_has_a_budget_of_bytes() -> None:
    program = aicf.compile(make_mlp(), (Tensor(make_rows(1)),), cache_bytes=6144)
    assert program.variants is not None
    for count in (2, 4, 8, 16, 32):
        program(make_rows(count))
        assert program.variants.num_bytes <= 6144
    assert len(program.variants.shapes) < 5
    with pytest.raises(PlanError, match=r"the plan for float32\[4096,6\] needs \d+ bytes, more than cache_bytes=6144"):
        program(make_rows(4096))
    with pytest.raises(ValueError, match="cache_bytes=-1"):
        aicf.compile(make_mlp(), (Tensor(make_rows(1)),), cache_bytes=-1)


def test_other_dtypes_are_refused() -> None:
    program = aicf.compile(make_mlp(), (Tensor(make_rows(2)),))
    with pytest.raises(ValueError, match=r"x0: compiled for float32\[2,6\], got float64\[2,6\]; cast it to float32"):
        program(np.ones((2, 6)))


def make_training(backend: str, p: float = 0.25) -> tuple[nn.Module, optim.Optimizer, Callable[..., Tensor]]:
    aicf.manual_seed(5)
    drop = [nn.Dropout(p, aicf.Generator(2))] if p else []
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), *drop, nn.Linear(16, 3)).to(backend)
    rate = optim.cosine(1e-2, total=20) if p else 1e-2
    return model, optim.AdamW(model.parameters(), rate), lambda m, x, y: F.cross_entropy(m(x), y)


BATCHES = [(make_rows(n), RNG.integers(0, 3, size=n)) for n in (8, 8, 8, 3, 8, 3, 8)]


def test_a_step_takes_batches_of_other_sizes_on_the_same_states() -> None:
    (eager, opt, loss), (model, other, _) = make_training("numpy"), make_training("numpy")
    step = aicf.compile_step(model, loss, other, [Tensor(a) for a in BATCHES[0]])
    for x, y in BATCHES:
        opt.zero_grad()
        expected = loss(eager, Tensor(x), Tensor(y))
        expected.backward()
        opt.step()
        assert step(x, y).item() == expected.item()
    for (path, p), (_, q) in zip(eager.named_parameters(), model.named_parameters(), strict=True):
        assert np.array_equal(p.numpy(), q.numpy()), path
    assert step.variants is not None
    assert step.variants.shapes == ["float32[3,6], int64[3]"]
    (variant,) = step.variants._kept.values()
    assert variant.shares_states


def test_states_that_lie_elsewhere_are_carried_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for lies_elsewhere in (False, True):
        model, optimizer, loss = make_training("numpy")
        step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
        if lies_elsewhere:
            monkeypatch.setattr("aicf.train.compiled.has_states_of", lambda plan, other: False)
        losses.append([step(x, y).item() for x, y in BATCHES])
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_step_and_a_program_take_other_sizes_on_the_device(device: Device) -> None:
    found = {}
    for backend in ("numpy", "cuda"):
        model, optimizer, loss = make_training(backend, p=0.0)
        program = aicf.compile(model.eval(), (Tensor(make_rows(8), backend=backend),))
        step = aicf.compile_step(model.train(), loss, optimizer, [Tensor(a, backend=backend) for a in BATCHES[0]])
        losses = [step(x, y).item() for x, y in BATCHES]
        found[backend] = losses, program(BATCHES[3][0]).numpy().copy(), program(BATCHES[0][0]).numpy().copy()
    np.testing.assert_allclose(found["cuda"][0], found["numpy"][0], rtol=1e-5)
    for a, b in zip(found["cuda"][1:], found["numpy"][1:], strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
