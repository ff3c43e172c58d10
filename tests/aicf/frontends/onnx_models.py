"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)


def make_model(nodes: Sequence[Any], inputs: Mapping[str, Any], outputs: Sequence[str], tensors: Mapping[str, Any], opset: int = 21) -> Any:
    """Return a model of nodes; an input is a shape of floats, or a dtype and a shape, and outputs are of any type."""
    types = {name: given if isinstance(given, tuple) else (TensorProto.FLOAT, given) for name, given in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in types.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def draw(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def make_mlp(features: int = 16, hidden: int = 32, classes: int = 4) -> Any:
    """Return a network of two layers as PyTorch's exporters write it."""
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["z"], name="fc1/Gemm", transB=1),
        helper.make_node("Relu", ["z"], ["h"], name="act/Relu"),
        helper.make_node("Gemm", ["h", "fc2.weight", "fc2.bias"], ["logits"], name="fc2/Gemm", transB=1),
    ]
    tensors = {
        "fc1.weight": draw(hidden, features) * 0.2,
        "fc1.bias": draw(hidden) * 0.2,
        "fc2.weight": draw(classes, hidden) * 0.2,
        "fc2.bias": draw(classes) * 0.2,
    }
    return make_model(nodes, {"x": ["batch", features]}, ["logits"], tensors)


__all__ = ["draw", "helper", "make_mlp", "make_model", "onnx"]
