"""Training on a device, real or emulated: whole steps of frozen kernels, beside the truth on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.opset import find_dtype
from aicf.plan import planner
from aicf.random import Generator
from aicf.train import building
from device import Device, UnavailableError

RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(size=(8, 16)).astype(np.float32), RNG.integers(0, 4, size=8)) for _ in range(10)]
Build = Callable[[nn.Module], optim.Optimizer]


@pytest.fixture(autouse=True)
def opened(device: Device) -> Device:
    return device


def make(p: float = 0.0) -> nn.Module:
    aicf.manual_seed(0)
    drop = [nn.Dropout(p, Generator(7))] if p else []
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), *drop, nn.Linear(32, 4))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), lr=1e-2)


def adam_with_schedule(model: nn.Module) -> optim.Optimizer:
    return optim.AdamW(model.parameters(), lr=optim.cosine(1e-2, total=40, warmup=5))


def train(backend: str, build: Build, p: float = 0.0, **options: Any) -> tuple[aicf.train.Step, list[float]]:
    model = make(p)
    step = aicf.compile_step(model, loss, build(model), [Tensor(a) for a in BATCHES[0]], backend=backend, **options)
    return step, [step(x, y).item() for x, y in BATCHES * 2]


def name_launches(step: aicf.train.Step) -> list[str]:
    return [f"flat {s.attrs['op']}" if s.op == "flat" else s.op for s in step.plan.steps]


def test_adam_in_one_launch_has_the_truths_losses() -> None:
    _, expected = train("numpy", adam)
    step, losses = train("cuda", adam)
    # Sums of 16 and 32 products and a dozen roundings of 2**-24 each step, for 20 steps.
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # Forward, loss with the last bias's gradient, backward with the slope and the other bias's in it, and all updates with the step.
    assert name_launches(step) == [*["gemm_bias_act"] * 2, "cross_entropy", *["gemm_backward"] * 2, "flat optimizer"]
    # The launch of all updates counts: 20 steps, 5 that were verified and taken back.
    assert step.verify_replay(5)
    assert step.state_dict()["control:step"] == 20


@pytest.mark.slow
def test_a_layer_used_twice_adds_its_second_gradient_in_the_product() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.first, self.second, self.last = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.relu(self.second(F.relu(self.second(F.relu(self.first(x)))))))

    found = {}
    for backend in ("numpy", "cuda"):
        aicf.manual_seed(0)
        model = Twice()
        step = aicf.compile_step(model, loss, adam(model), [Tensor(a) for a in BATCHES[0]], backend=backend)
        found[backend] = [step(x, y).item() for x, y in BATCHES]
    np.testing.assert_allclose(found["cuda"], found["numpy"], rtol=1e-5)
    added = [s for s in step.plan.steps if s.op == "gemm_backward" and s.attrs["accumulate"]]
    assert [s.inputs[4] and s.inputs[4].offset for s in added] == [s.outputs[-1].offset for s in added] != []


@pytest.mark.slow
def test_dropout_schedule_and_clipping_train_as_the_truth_does(opened: Device) -> None:
    _, expected = train("numpy", adam_with_schedule, 0.25, clip_norm=0.5)
    step, losses = train("cuda", adam_with_schedule, 0.25, clip_norm=0.5)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert step.verify_replay(20 if opened.is_emulated else 1000)
    launches = name_launches(step)
    # The norm, the factor on all gradients, and all updates with the step are a launch each; rate and factor are made by one.
    assert [name for name in launches if name.startswith("flat")] == ["flat reduce", "flat elementwise", "flat optimizer"]
    numbers = [[o.type.dtype for o in s.outputs] for s in step.plan.steps if s.op == "elementwise" and s.attrs["columns"] == 1]
    assert numbers == [["uint64"], ["float32", "float32"]]  # the first counts what dropout has drawn


@pytest.mark.slow
def test_mixed_precision_trains_on_16_bit_kernels(tmp_path: Path) -> None:
    _, expected = train("numpy", adam, amp="bfloat16")
    step, losses = train("cuda", adam, amp="bfloat16")
    # Products round to 2**-9 on both sides, at times to neighbours; over 20 steps of a rate of 1e-2.
    np.testing.assert_allclose(losses, expected, rtol=5e-3)
    # The update writes the weights in 16 bits too, and the input is cast as it comes in.
    assert name_launches(step) == [*["gemm_bias_act"] * 2, "cross_entropy", *["gemm_backward"] * 2, "flat optimizer"]
    assert [s.op for s in step.plan.intake] == ["elementwise"]
    gradients = {s.type.dtype for each in step.plan.steps for s in each.writes if s.region == "gradient"}
    assert gradients == {"bfloat16"}
    step.save(tmp_path)
    loaded = aicf.load(tmp_path)
    assert isinstance(loaded, aicf.train.Step)
    assert [loaded(*b).item() for b in BATCHES] == [step(*b).item() for b in BATCHES]


def train_with_interruptions(x: Callable[[np.ndarray], Any]) -> tuple[aicf.train.Step, list[float]]:
    """Train in 16 bits; between steps, parameters are written in every way there is, and a batch of another size comes."""
    model = make()
    step = aicf.compile_step(model, loss, adam(model), [Tensor(a) for a in BATCHES[0]], backend="cuda", amp="bfloat16")
    weight = next(iter(model.parameters()))
    losses = [step(x(a), x(b)).item() for a, b in BATCHES[:2]]
    before = step.state_dict()
    with aicf.no_grad():
        weight.copy_(weight * 2.0)
    losses += [step(x(a), x(b)).item() for a, b in BATCHES[:2]]
    losses += [step(x(a[:4]), x(b[:4])).item() for a, b in BATCHES[:2]]
    losses += [step(x(a), x(b)).item() for a, b in BATCHES[:2]]
    step.load_state_dict(before)
    assert step.verify_replay(2)
    losses += [step(x(a), x(b)).item() for a, b in BATCHES[:2]]
    np.from_dlpack(weight.detach(), device="cpu")  # whoever gets a parameter's memory may write at any time
    weight.data.copy_from_host(before["parameter:0.weight"] * 3.0)
    losses += [step(x(a), x(b)).item() for a, b in BATCHES[:2]]
    return step, losses


@pytest.mark.slow  # 16-bit kernels of a whole step are compiled
def test_copies_in_16_bits_follow_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    own, losses = train_with_interruptions(lambda a: a)
    _, on_device = train_with_interruptions(lambda a: Tensor(a, backend="cuda"))
    monkeypatch.setattr(building, "PASSES", [each for each in building.PASSES if each.name != "keep copies"])
    monkeypatch.setattr(planner, "find_intake", lambda graph: {})
    casting, expected = train_with_interruptions(lambda a: a)
    # The same bits as of a plan that casts weights and input in every run, by two launches more.
    assert len(casting.plan.steps) == len(own.plan.steps) + 2 and not casting.plan.copies
    assert losses == on_device == expected
    assert losses[0] != losses[-2]
    assert own.state_dict().keys() == casting.state_dict().keys()
    # What a run needs is at hand: settings take longer to read than a step of a small network takes.
    monkeypatch.setattr("device.read_settings", lambda: pytest.fail("a run reads the settings"))
    own(*BATCHES[0])


@pytest.mark.slow  # its observers are chains of their own, which are compiled
def test_a_run_in_16_bits_is_rewritten_rolled_back_and_resumed_with_its_copies(tmp_path: Path) -> None:
    def begin() -> aicf.rewrite.Run:
        model = make()
        step = aicf.compile_step(model, loss, adam(model), [Tensor(a) for a in BATCHES[0]], backend="cuda", amp="bfloat16")
        # A window ends behind every fourth step: before the network is wider, so that no other kernels close one.
        return aicf.rewrite.Run(step, every=4)

    run = begin()
    run.fit(BATCHES, 3)
    assert run.step.plan.copies and run.step.plan.given_types[0].dtype == "float32"
    snapshot = run.snapshot()
    snapshot.save(tmp_path / "run.safetensors")
    losses = run.fit(BATCHES, 2)
    run.widen("0", 48)
    assert np.isfinite(run.step(*BATCHES[0]).item())  # by itself: what closes the wider network's windows would be compiled for `fit`
    assert run.step.verify_replay(2)
    run.rollback(snapshot)
    assert run.fit(BATCHES, 2) == losses
    other = begin()
    other.resume(tmp_path / "run.safetensors")
    assert other.fit(BATCHES, 2) == losses


@pytest.mark.slow
def test_eager_training_has_the_truths_losses() -> None:
    found = []
    for backend in ("numpy", "cuda"):
        model = make().to(backend)
        optimizer, losses = adam(model), []
        for x, y in BATCHES[:4]:
            optimizer.zero_grad()
            value = loss(model, Tensor(x, backend=backend), Tensor(y, backend=backend))
            value.backward()
            optimizer.step()
            losses.append(value.item())
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_norms_train_as_the_truth_does(norm: type[nn.Module]) -> None:
    def make_normed() -> nn.Module:
        aicf.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), norm(32), nn.ReLU(), nn.Linear(32, 8))

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((24, 16)).astype(np.float32), rng.integers(0, 8, 24)
    found = {}
    for backend in ("numpy", "cuda"):
        with aicf.use_backend(backend):
            model = make_normed()
            step = aicf.compile_step(model, loss, adam(model), (Tensor(x), Tensor(y)))
            found[backend] = [float(step(x, y).numpy()) for _ in range(8)]
    assert norm.__name__.lower() in name_launches(step)
    assert step.verify_replay(3)
    np.testing.assert_allclose(found["cuda"], found["numpy"], rtol=1e-5)


@pytest.mark.slow  # six kernels that no fast test needs are compiled
def test_an_embedding_trains_as_the_truth_does() -> None:
    def make_classifier() -> nn.Module:
        aicf.manual_seed(0)
        return nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 5))

    tokens = np.array([[0, 3, 3, 10], [7, 0, 3, 1]])  # rows that are read twice, and rows that nobody reads
    y = np.arange(8) % 5
    found = {}
    for backend in ("numpy", "cuda"):
        with aicf.use_backend(backend):
            model, batch = make_classifier(), (Tensor(tokens), Tensor(y))
            F.cross_entropy(model(batch[0]).reshape(8, 5), batch[1]).backward()
            gradient = next(iter(model.parameters())).grad
            assert gradient is not None
            step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x).reshape(8, 5), y), adam(model), batch)
            found[backend] = [gradient.numpy().copy(), *(step(tokens, y).item() for _ in range(3)), model(batch[0]).numpy()]
    assert {"embedding", "embedding_backward"} <= set(name_launches(step))
    assert step.verify_replay(3)
    for a, b in zip(found["cuda"], found["numpy"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # the kernels of two ops are compiled that no fast test needs
@pytest.mark.parametrize("log", [False, True])
def test_softmax_trains_as_the_truth_does(log: bool) -> None:
    function = F.log_softmax if log else F.softmax
    x, y = RNG.normal(size=(2, 3, 16)).astype(np.float32), RNG.integers(0, 40, 6)
    halves = RNG.normal(size=(5, 2, 33)).astype(find_dtype("bfloat16"))
    found = {}
    for backend in ("numpy", "cuda"):
        with aicf.use_backend(backend):
            aicf.manual_seed(0)
            model = nn.Linear(16, 40)
            optimizer, batch = optim.SGD(model.parameters(), lr=1.0), (Tensor(x), Tensor(y))
            step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(function(m(x)).reshape(6, 40), y), optimizer, batch)
            found[backend] = [step(x, y).item() for _ in range(3)], function(Tensor(halves)).numpy().astype(np.float32)
    assert {"softmax", "softmax_backward"} <= set(name_launches(step))
    np.testing.assert_allclose(found["cuda"][0], found["numpy"][0], rtol=1e-5)
    np.testing.assert_allclose(found["cuda"][1], found["numpy"][1], rtol=2.0**-7)  # neighbours at most


def test_masks_are_the_truths() -> None:
    x = np.ones((5, 12), np.float32)
    host, own = Generator(5), Generator(5)
    for _ in range(2):
        expected = F.dropout(Tensor(x), 0.25, generator=host).numpy()
        np.testing.assert_allclose(F.dropout(Tensor(x, backend="cuda"), 0.25, generator=own).numpy(), expected, rtol=1e-6)
        assert 0 < (expected == 0).sum() < x.size


@pytest.mark.slow
def test_counters_carry_into_their_upper_word() -> None:
    count = Tensor(np.int64(2**32 - 1), backend="cuda")
    assert (count + 1).item() == 2**32
    assert (count + 1 + count).item() == 2**33 - 1


@pytest.mark.parametrize("axes", [0, None])
def test_reductions_are_the_truths(axes: int | None) -> None:
    x = RNG.normal(size=(9, 33)).astype(np.float32)
    for function in ("sum", "mean"):
        found, expected = (getattr(Tensor(x, backend=b), function)(axes).numpy() for b in ("cuda", "numpy"))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_emulated_device_has_no_times(opened: Device) -> None:
    model = make()
    step = aicf.compile_step(model, loss, adam(model), [Tensor(a) for a in BATCHES[0]], backend="cuda")
    step(*BATCHES[0])
    before = step.executor.read_bytes("state")
    if opened.is_emulated:
        with pytest.raises(UnavailableError, match="profile on a GPU"):
            step.profile()
    else:
        assert [row.step for row in step.profile()] == list(range(len(step.plan.steps)))
    np.testing.assert_array_equal(step.executor.read_bytes("state"), before)
