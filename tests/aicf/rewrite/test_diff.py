"""Snapshots that are compared, forks that train side by side, and networks that were imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, frontends, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.errors import StateError
from aicf.rewrite import RewriteError, Run, read_snapshot

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 16)).astype(np.float32), RNG.integers(0, 4, size=64)


def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def start(model: nn.Module) -> Run:
    step = aicf.compile_step(model, loss, optim.AdamW(model.parameters(), lr=1e-2), (Tensor(X[:16]), Tensor(Y[:16])), backend="numpy")
    return Run(step)


def make_mlp() -> nn.Module:
    aicf.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def load() -> DataLoader:
    return DataLoader((X, Y), batch=16, seed=3)


def test_a_difference_names_structure_and_state_by_owner() -> None:
    run, loader = start(make_mlp()), load()
    run.fit(loader, 2)
    before = run.snapshot()
    same = before.diff(run.snapshot())
    assert not (same.steps or same.done or same.undone or same.gone or same.new or same.reshaped or same.changed)
    old = run.model[2].bias.numpy().copy()
    run.fit(loader, 3)
    trained = before.diff(run.snapshot())
    expected = np.abs(run.model[2].bias.numpy().astype(np.float64) - old).max()
    assert trained.steps == 3 and trained.changed["parameter:2.bias"] == expected and not trained.reshaped
    run.widen("0", 16)
    run.freeze("2.bias")
    wide = run.snapshot()
    found = before.diff(wide)
    assert [r.rule for r in found.done] == [r.rule for r in run.records] and found.undone == ()
    assert found.reshaped["parameter:0.weight"] == found.reshaped["exp_avg:0.weight"] == ((8, 16), (16, 16))
    assert {"resting exp_avg:2.bias", "resting exp_avg_sq:2.bias"} <= set(found.new)
    assert {"exp_avg:2.bias", "exp_avg_sq:2.bias"} <= set(found.gone) and "parameter:2.bias" not in found.gone
    assert "parameter:0.weight [8, 16] -> [16, 16]" in str(found)
    back = wide.diff(before)
    assert back.undone == found.done and back.done == () and set(back.gone) == set(found.new) and back.steps == -3
    assert before.diff(before).changed == {}  # a snapshot is not changed by the steps behind it


def test_snapshots_are_named_listed_and_rolled_back_to_by_name_and_files_are_compared(tmp_path: Path) -> None:
    run, loader = start(make_mlp()), load()
    run.fit(loader, 2)
    narrow = run.snapshot("narrow")
    run.freeze("2.bias")
    run.widen("0", 16)
    wide = run.snapshot("wide", on_host=True)
    assert run.snapshot() not in run.snapshots.values() and run.snapshots == {"narrow": narrow, "wide": wide}
    assert [str(s) for s in run.snapshots.values()] == [
        f"narrow: step 2, 0 rewrites, {narrow.size_bytes} bytes on the host",
        f"wide: step 2, 2 rewrites, {wide.size_bytes} bytes on the host",
    ]
    for name, snapshot in run.snapshots.items():
        snapshot.save(tmp_path / name)
    first, second = (read_snapshot(tmp_path / name) for name in run.snapshots)
    assert (second.name, second.steps_done, len(second.records)) == ("wide", 2, 2) and str(first).startswith("narrow: step 2, 0 rewrites, ")
    assert sorted(str(first.diff(second)).splitlines()) == sorted(str(narrow.diff(wide)).splitlines())
    assert "resting exp_avg:2.bias" in first.diff(second).new
    assert not second.diff(wide).changed and not second.diff(wide).new
    run.rollback("narrow")
    assert run.model[0].out_features == 8 and run.fork().snapshots == {}
    run.fit(loader, 1)
    later = run.snapshot("narrow")
    assert run.snapshots["narrow"] is later and later.steps_done == 3 and narrow.diff(later).steps == 1
    del run.snapshots["wide"]
    with pytest.raises(StateError, match="there is no snapshot 'wide'; there are: narrow"):
        run.rollback("wide")


def test_two_forks_train_side_by_side_and_the_better_goes_on() -> None:
    run, loader = start(make_mlp()), load()
    run.fit(loader, 4)
    fork = run.snapshot()
    forks = {"wider": run.fork(), "pruned to one unit": run.fork()}
    forks["wider"].widen("0", 16)
    forks["pruned to one unit"].prune("0", range(1, 8))
    alone = run.fork()
    alone.widen("0", 16)
    loaders = {name: load() for name in forks}
    losses: dict[str, list[float]] = {name: [] for name in forks}
    for _ in range(20):  # in turns, so that each would see what the other writes
        for name, each in forks.items():
            losses[name] += each.fit(loaders[name], 1)
    assert losses["wider"] == [x for loader in [load()] for _ in range(20) for x in alone.fit(loader, 1)]
    best = min(forks, key=lambda name: losses[name][-1])
    assert best == "wider"
    assert len(forks[best].fit(loaders[best], 3)) == 3 and forks[best].steps_done == 27
    assert fork.diff(run.snapshot()).changed == {}  # the one that they come from stands where it stood


def import_onnx() -> nn.Module:
    models = pytest.importorskip("tests.aicf.frontends.onnx_models", reason="onnx is not installed here: pip install 'aicf[onnx]'")
    return frontends.onnx(models.make_mlp())


def import_torch() -> nn.Module:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

        def forward(self, x: Any) -> Any:
            return self.fc2(torch.relu(self.fc1(x)))

    return frontends.torch(Network())


@pytest.mark.parametrize("make", [import_onnx, import_torch])
def test_an_imported_network_is_rewritten_as_an_own_one(make: Any) -> None:
    run, loader = start(make()), load()
    run.fit(loader, 2)
    expected = run.model(Tensor(X)).numpy()
    before = run.snapshot()
    widened = run.widen("fc1", 48)
    assert widened.preserves and widened.delta <= 1e-6 * max(widened.scale, 1.0)
    np.testing.assert_allclose(run.model(Tensor(X)).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert dict(run.model.named_parameters())["fc1.weight"].shape == (48, 16)
    run.prune("fc1", [0, 5])
    assert np.isfinite(run.fit(loader, 3)).all() and run.step.verify_replay(2)
    run.rollback(before)
    np.testing.assert_array_equal(run.model(Tensor(X)).numpy(), expected)


def test_modules_of_a_torch_network_are_deepened_replaced_and_split() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
    torch.manual_seed(0)
    source = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.GELU(), torch.nn.Linear(12, 4))
    run, loader = start(frontends.torch(source)), load()
    names = {type(m).__name__: [path for path, each in run.model.modules() if type(each) is type(m)] for _, m in run.model.modules()}
    first, activation, last = names["Part"]
    run.deepen(activation, hidden=5)
    run.fit(loader, 3)
    assert run.step.state_dict()[f"parameter:{activation}.1.down.weight"].any()
    assert run.split(first, 12).delta <= 1e-5 and run.replace_activation(f"{activation}.0", "tanh").delta > 1e-4
    run.widen(f"{first}.0", 20)
    assert run.undo(run.split(last, 4)).delta <= 1e-5
    assert np.isfinite(run.fit(loader, 3)).all() and run.step.verify_replay(2)


def import_residual() -> nn.Module:
    """Return y = head(x + block(x)), a block of two layers with an activation that is the block's own call."""
    models = pytest.importorskip("tests.aicf.frontends.onnx_models", reason="onnx is not installed here: pip install 'aicf[onnx]'")
    make = models.helper.make_node
    nodes = [
        make("Gemm", ["x", "block.up.weight", "block.up.bias"], ["z"], name="block/up/Gemm", transB=1),
        make("Relu", ["z"], ["h"], name="block/act/Relu"),
        make("Gemm", ["h", "block.down.weight"], ["d"], name="block/down/Gemm", transB=1),
        make("Add", ["d", "x"], ["s"], name="block/Add"),
        make("Gemm", ["s", "head.weight", "head.bias"], ["logits"], name="head/Gemm", transB=1),
    ]
    tensors = {
        "block.up.weight": (12, 16),
        "block.up.bias": (12,),
        "block.down.weight": (16, 12),
        "head.weight": (4, 16),
        "head.bias": (4,),
    }
    drawn = {name: models.draw(*shape) * 0.2 for name, shape in tensors.items()}
    return frontends.onnx(models.make_model(nodes, {"x": ["batch", 16]}, ["logits"], drawn))


def test_parts_of_an_imported_network_are_deepened_split_replaced_and_removed(tmp_path: Path) -> None:
    run, loader = start(import_residual()), load()
    run.fit(loader, 2)
    expected = run.model(Tensor(X)).numpy()
    deeper = run.deepen("block.up", hidden=5)
    run.insert_norm("block.down", "rms")
    np.testing.assert_allclose(run.model(Tensor(X)).numpy(), expected, atol=1e-6)
    run.fit(loader, 3)
    states = run.step.state_dict()  # what was inserted runs: it has learned
    inserted = ["block.up.1.down.weight", "block.down.1.gate"]
    assert all(states[f"parameter:{path}"].any() and states[f"exp_avg:{path}"].any() for path in inserted)
    assert deeper.nodes["block.up.weight"] == "block.up.0.weight"
    split = run.split("head", 4)
    assert split.delta <= 1e-5 and {"head.0.weight", "head.1.weight", "head.1.bias"} <= dict(run.model.named_parameters()).keys()
    assert not any(path == "head.weight" for path, _ in run.model.named_tensors())
    changed = run.replace_activation("block.act", "tanh")
    assert changed.delta > 1e-3 and run.undo(changed).delta > 1e-3
    run.widen("block.up.0", 18)
    assert run.remove("block.act").delta > 1e-3
    assert np.isfinite(run.fit(loader, 3)).all() and run.step.verify_replay(2)
    frontends.export_onnx(run.model, (Tensor(X[:16]),), tmp_path / "model.onnx")
    np.testing.assert_allclose(
        frontends.onnx(tmp_path / "model.onnx")(Tensor(X[:16])).numpy(), run.model(Tensor(X[:16])).numpy(), atol=1e-5
    )


@pytest.mark.parametrize("change", [lambda r: r.deepen("block"), lambda r: r.insert_norm("block"), lambda r: r.remove("block")])
def test_a_part_in_whose_place_nothing_would_run_is_refused(change: Any) -> None:
    run = start(import_residual())
    step = run.step
    with pytest.raises(RewriteError, match="block: is a part of an imported network that is no function of one value"):
        change(run)
    assert run.step is step and run.records == []
    with pytest.raises(RewriteError, match="only a linear layer can be split"):
        run.split("block.act", 2)
    with pytest.raises(RewriteError, match="only an activation can be replaced"):
        run.replace_activation("head", "tanh")
