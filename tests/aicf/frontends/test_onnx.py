"""Networks from ONNX: they run as ONNX's reference does, train, compile, and list all that is not served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed here: pip install 'aicf[onnx]'")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import aicf  # noqa: E402
from aicf import Tensor, frontends, optim  # noqa: E402
from aicf import functional as F  # noqa: E402
from aicf.errors import UnsupportedError  # noqa: E402
from device import Device  # noqa: E402
from tests.aicf.frontends.onnx_models import draw, make_mlp, make_model  # noqa: E402

X, Y = draw(8, 16), np.random.default_rng(1).integers(0, 4, size=8)


def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def evaluate(model: Any, **inputs: Any) -> list[Any]:
    return ReferenceEvaluator(model).run(None, inputs)


def test_a_network_runs_as_the_reference_does(tmp_path: Path) -> None:
    model = make_mlp()
    onnx.save(model, tmp_path / "mlp.onnx")
    for network in (frontends.onnx(model), frontends.onnx(tmp_path / "mlp.onnx")):
        np.testing.assert_allclose(network(Tensor(X)).numpy(), evaluate(model, x=X)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(network(x=Tensor(X)).numpy(), network(Tensor(X)).numpy())
        assert [p for p, _ in network.named_parameters()] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


def train(backend: str | None, steps: int = 10) -> tuple[list[float], Any]:
    """Return losses of training on one batch: eagerly, or compiled for a backend."""
    network = frontends.onnx(make_mlp())
    network.load_state_dict({p: np.random.default_rng(2).normal(size=t.shape) * 0.2 for p, t in network.named_parameters()})
    optimizer = optim.Adam(network.parameters(), lr=1e-2)
    if backend is not None:
        step = aicf.compile_step(network, loss, optimizer, (Tensor(X), Tensor(Y)), backend=backend)
        return [step(X, Y).item() for _ in range(steps)], step
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(network, Tensor(X), Tensor(Y))
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses, network


def test_it_trains_and_a_compiled_step_has_the_same_bits() -> None:
    eager, _ = train(None)
    compiled, step = train("numpy")
    assert eager == compiled
    assert eager[-1] < 0.5 * eager[0]
    places = {node.owner: node.source for node in step.recorded.nodes}
    assert places["fc1"] == "network: fc1/Gemm" and places["act"] == "network: act/Relu"


def test_it_trains_on_frozen_kernels(device: Device) -> None:
    expected, _ = train("numpy")
    found, step = train("cuda")
    # Sums of 16 and 32 products and a dozen roundings of 2**-24 each step, for 10 steps.
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert step.verify_replay(3)


def test_all_that_is_not_served_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="body/conv"),
        helper.make_node("Pad", ["a", "pads"], ["b"], name="body/pad", mode="reflect"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Fancy", ["c"], ["d"], domain="com.example"),
    ]
    model = make_model(
        nodes, {"x": [1, 1, 4, 4], "n": (TensorProto.INT8, [1])}, ["d"], {"w": draw(1, 1, 1, 1), "pads": np.zeros(8, np.int64)}
    )
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedError) as error:
        frontends.onnx(model)
    for told in (
        "4 places",
        "input: n: ",
        "Conv: network: body/conv",
        "Pad: network: body/pad: mode = 'reflect'",
        "com.example.Fancy: network: node 3",
    ):
        assert told in str(error.value)


def test_what_cuda_does_not_serve_is_listed_with_its_place(device: Device) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["t"], name="multiply"),
        helper.make_node("MatMul", ["t", "x"], ["y"], name="again"),
    ]
    network = frontends.onnx(make_model(nodes, {"x": [65, 4, 4]}, ["y"], {}))
    with pytest.raises(UnsupportedError, match=r"(?s)2 calls have no frozen kernel.*network: multiply.*network: again"):
        aicf.compile(network, (Tensor(draw(65, 4, 4)),), backend="cuda")


def test_numbers_found_from_shapes_stay_on_the_host() -> None:
    """Exporters write reshapes to what a shape says; a graph has neither the shape nor what was computed of it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "zero_axis"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Cast", ["n"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["flat", "count"], ["scaled"]),
        helper.make_node("Add", ["scaled", "table"], ["y"]),
    ]
    tensors = {
        "zero": np.int64(0),
        "zero_axis": np.array([0]),
        "rest": np.array([-1]),
        "table": np.arange(12, dtype=np.float64).reshape(1, 12),
    }
    tensors["table"] = tensors["table"].astype(np.float32)
    model = make_model(nodes, {"x": ["n", 3, 4]}, ["y"], tensors)
    network, x = frontends.onnx(model), draw(2, 3, 4)
    expected = evaluate(model, x=x)[0]
    program = aicf.compile(network, (Tensor(x),))
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(network(Tensor(x)).numpy(), program(x).numpy())
    assert {node.op for node in program.recorded.nodes} <= {"Reshape", "Full", "Broadcast", "Elementwise"}


def test_functions_are_put_in_their_places() -> None:
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    model = make_model([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": [3]}, ["y"], {})
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(frontends.onnx(model)(Tensor(X[0, :3])).numpy(), 2 * X[0, :3])


def test_dropout_follows_the_modules_mode_where_the_model_trains() -> None:
    nodes = [helper.make_node("Dropout", ["x", "ratio", "trains"], ["y"])]
    network = frontends.onnx(make_model(nodes, {"x": [8, 16]}, ["y"], {"ratio": np.float32(0.5), "trains": np.bool_(True)}))
    assert (network(Tensor(X)).numpy() == 0).any()
    np.testing.assert_array_equal(network.eval()(Tensor(X)).numpy(), X)


def test_statistics_are_buffers_and_inputs_are_checked() -> None:
    tensors = {"scale": np.ones(3, np.float32), "bias": draw(3), "mean": draw(3), "variance": np.full(3, 2, np.float32)}
    model = make_model([helper.make_node("BatchNormalization", ["x", *tensors], ["y"])], {"x": ["n", 3, 5]}, ["y"], tensors)
    network, x = frontends.onnx(model), draw(2, 3, 5)
    assert [p for p, _ in network.named_parameters()] == ["scale", "bias"]
    np.testing.assert_allclose(network(Tensor(x)).numpy(), evaluate(model, x=x)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"input x: expected float32\[any,3,5\], got float32\[2,4,5\]"):
        network(Tensor(draw(2, 4, 5)))
    with pytest.raises(TypeError, match="missing x, unknown z"):
        network(z=Tensor(x))


def test_an_error_in_a_call_names_its_place() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], name="rows", axis=0)]
    network = frontends.onnx(make_model(nodes, {"x": [2, 3], "i": (TensorProto.INT64, [1])}, ["y"], {}))
    with pytest.raises(IndexError, match=r"^Gather: network: rows: Embedding: index 5 is not in 0\.\.1$"):
        network(Tensor(draw(2, 3)), Tensor(np.array([5])))
