"""Networks from PyTorch: every kind of source gives PyTorch's values and gradients; they train, compile, and list what is not served."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")

import aicf  # noqa: E402
from aicf import Tensor, frontends, optim  # noqa: E402
from aicf import functional as F  # noqa: E402
from aicf.errors import UnsupportedError  # noqa: E402
from device import Device  # noqa: E402

nn, TF = torch.nn, torch.nn.functional
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # PyTorch's own, of a decomposition
]


class Block(nn.Module):
    """Embeddings, norms, attention written out, a residual stream, views, and an activation that works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 16)
        body = (nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 16), nn.ReLU(inplace=True))
        self.body = nn.Sequential(*body)
        self.bn, self.norm, self.act, self.head = nn.BatchNorm1d(5), nn.RMSNorm(16), nn.SiLU(), nn.Linear(16, 4)
        self.register_buffer("shift", torch.randn(16))

    def forward(self, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = self.emb(i) + x * 2.0 - self.shift
        y = self.norm(self.bn(y + self.body(y)))
        b, t, c = y.shape
        q = y.reshape(b, t, 2, c // 2).transpose(1, 2)
        y = y + (torch.softmax(q @ q.transpose(-2, -1) / 2.8, dim=-1) @ q).transpose(1, 2).contiguous().view(b, t, c)
        y = self.act(torch.cat([y[:, :2], y[:, 2:].mean(1, keepdim=True)], dim=1))
        y = torch.where(y > 0.5, y.clamp(-1, 2), y.pow(2))
        p, q = y.chunk(2, -1)
        y = torch.stack([p, q], 0).permute(1, 2, 0, 3).flatten(2)
        return TF.log_softmax(self.head(y), -1)


@pytest.fixture(scope="module")
def block() -> Any:
    torch.manual_seed(0)
    return Block().eval()


RNG = np.random.default_rng(0)
INDICES, X = RNG.integers(0, 7, size=(3, 5)), RNG.normal(size=(3, 5, 16)).astype(np.float32)
ARGUMENTS = (torch.from_numpy(INDICES), torch.from_numpy(X))


@functools.cache
def export(module: Any) -> Any:
    return torch.export.export(module, ARGUMENTS)


SOURCES: dict[str, Callable[[Any], Any]] = {
    "module": lambda m: m,
    "fx": torch.fx.symbolic_trace,
    "export": lambda m: export(m),
    "export of any batch": lambda m: torch.export.export(m, ARGUMENTS, dynamic_shapes=[{0: torch.export.Dim("b")}] * 2),
    "core ATen": lambda m: export(m).run_decompositions(),
    "trace": lambda m: torch.jit.trace(m, ARGUMENTS, check_trace=False),
    "script": torch.jit.script,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_has_pytorchs_values_and_gradients(kind: str, block: Any) -> None:
    network = frontends.torch(SOURCES[kind](block))
    weights = RNG.normal(size=(3, 3, 4)).astype(np.float32)
    block.zero_grad()
    expected = block(*ARGUMENTS)
    (expected * torch.from_numpy(weights)).sum().backward()
    found = network(Tensor(INDICES), Tensor(X))
    (found * Tensor(weights)).sum().backward()
    # Five layers of sums of 5 to 32 products in fp32, in another order.
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-5, atol=2e-6)
    theirs, ours = dict(block.named_parameters()), dict(network.named_parameters())
    assert theirs.keys() == ours.keys()
    for name, p in theirs.items():
        assert p.grad is not None and ours[name].grad is not None, name
        np.testing.assert_allclose(ours[name].grad.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
        assert ours[name].numpy().ctypes.data == p.data_ptr(), name
    program = aicf.compile(network, (Tensor(INDICES), Tensor(X)))
    np.testing.assert_allclose(program(INDICES, X).numpy(), found.numpy(), rtol=1e-6, atol=1e-6)
    assert {"body.0", "head"} <= {node.owner for node in program.recorded.nodes}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pytorchs_own_export_to_onnx_gives_its_values_for_any_batch() -> None:
    pytest.importorskip("onnx_ir", reason="onnx-ir is not installed here: pip install 'aicf[onnx]'")
    import onnx

    torch.manual_seed(0)
    model, file = Block().eval(), io.BytesIO()
    model.norm = nn.LayerNorm(16)  # this exporter has no RMSNorm
    axes = {"i": {0: "batch"}, "x": {0: "batch"}}
    torch.onnx.export(model, ARGUMENTS, file, input_names=["i", "x"], opset_version=18, dynamic_axes=axes, dynamo=False)
    network = frontends.onnx(onnx.load_from_string(file.getvalue()))
    for rows in (3, 2):
        expected = model(*(a[:rows] for a in ARGUMENTS)).detach().numpy()
        program = aicf.compile(network, (Tensor(INDICES[:rows]), Tensor(X[:rows])))
        np.testing.assert_allclose(program(INDICES[:rows], X[:rows]).numpy(), expected, rtol=1e-5, atol=2e-6)
    assert {"body.0.bias", "head.bias", "emb.weight"} <= {path for path, _ in network.named_parameters()}


def make_mlp() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


BATCHES = [(RNG.normal(size=(8, 16)).astype(np.float32), RNG.integers(0, 4, size=8)) for _ in range(10)]


def train_ours(network: Any, backend: str | None) -> list[float]:
    def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    optimizer = optim.Adam(network.parameters(), lr=1e-2)
    if backend is not None:
        step = aicf.compile_step(network, loss, optimizer, [Tensor(a) for a in BATCHES[0]], backend=backend)
        return [step(x, y).item() for x, y in BATCHES]
    losses = []
    for x, y in BATCHES:
        optimizer.zero_grad()
        found = loss(network, Tensor(x), Tensor(y))
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses


def test_an_exported_network_trains_as_pytorch_does(device: Device) -> None:
    program = torch.export.export(make_mlp(), (torch.zeros(8, 16),))
    expected, model = [], make_mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in BATCHES:
        optimizer.zero_grad()
        loss = TF.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    copies = [torch.export.export(make_mlp(), (torch.zeros(8, 16),)) for _ in range(2)]
    eager, compiled = train_ours(frontends.torch(program), None), train_ours(frontends.torch(copies[0]), "numpy")
    assert eager == compiled
    # Sums of 16 and 32 products and a dozen roundings of 2**-24 each step, for 10 steps; Adam's slope is steep where a moment is small.
    np.testing.assert_allclose(eager, expected, rtol=1e-4)
    np.testing.assert_allclose(train_ours(frontends.torch(copies[1]), "cuda"), expected, rtol=1e-4)


class Unserved(nn.Module):
    """Four things that are not served, each somewhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 1)
        self.bn = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn(self.conv(x))
        z = y.view(-1)
        z.add_(1.0)
        return torch.cumsum(z, 0) + y.sum()


@pytest.mark.parametrize("kind", ["module", "export", "trace"])
def test_all_that_is_not_served_is_listed_at_once(kind: str) -> None:
    example = torch.zeros(1, 2, 3)
    sources = {"module": Unserved(), "export": None, "trace": None}
    if kind == "export":
        sources[kind] = torch.export.export(Unserved(), (example,))
    if kind == "trace":
        sources[kind] = torch.jit.trace(Unserved(), (example,), check_trace=False)
    with pytest.raises(UnsupportedError) as error:
        frontends.torch(sources[kind])
    told = str(error.value)
    for name in ("conv", "cumsum", "training = True", "in place"):
        assert name in told
    assert kind == "module" or "test_torch.py" in told


WRITES: dict[str, Callable[[Any], Any]] = {
    "an input": lambda x: x.add_(1.0),
    "a view": lambda x: (x * 2.0).view(-1).add_(1.0),
    "what a view shows": lambda x: (lambda y: (y.view(-1), y.add_(1.0))[0])(x * 2.0),
    "what is read later": lambda x: (lambda y: y.add_(1.0) + y)(x * 2.0),
    "what dropout passes on": lambda x: (lambda y: TF.dropout(y, training=False).add_(1.0) + y)(x * 2.0),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_write_in_place_that_would_be_seen_is_refused(what: str) -> None:
    class Writer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return WRITES[what](x)

    with pytest.raises(UnsupportedError, match=r"add_: .* in place, which is an input, a view, or read elsewhere"):
        frontends.torch(Writer())


def test_shapes_that_an_export_took_for_granted_are_checked() -> None:
    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(0) / x.shape[0]

    network = frontends.torch(torch.export.export(Mean(), (torch.zeros(4, 3),)))
    with pytest.raises(ValueError, match=r"input x: expected float32\[4,3\], got float32\[2,3\]"):
        network(Tensor(X[0, :2, :3]))
    dynamic = frontends.torch(torch.export.export(Mean(), (torch.zeros(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},)))
    np.testing.assert_allclose(dynamic(Tensor(X[0, :2, :3])).numpy(), X[0, :2, :3].mean(0), rtol=1e-6)


def test_one_tensor_under_two_names_stays_one_and_dropout_follows_the_mode() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4, bias=False)
            self.outer = nn.Linear(4, 4, bias=False)
            self.outer.weight = self.inner.weight
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(self.drop(self.inner(x)))

    model, x = Tied(), RNG.normal(size=(3, 4)).astype(np.float32)
    for source in (
        model,
        torch.export.export(model, (torch.from_numpy(x),)),
        torch.jit.trace(model, (torch.from_numpy(x),), check_trace=False),
    ):
        network = frontends.torch(source)
        assert [p for p, _ in network.named_parameters()] == ["inner.weight"]
        assert not np.array_equal(network(Tensor(x)).numpy(), network(Tensor(x)).numpy())
        np.testing.assert_allclose(
            network.eval()(Tensor(x)).numpy(), model.eval()(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6
        )
        model.train()


def test_what_is_no_network_of_pytorch_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.export program.*got dict"):
        frontends.torch({"weight": torch.zeros(2)})
