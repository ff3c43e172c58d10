"""A network from an ONNX file, compiled and run: ``python examples/onnx_infer.py [MODEL.onnx]``.

Without a file, scikit-learn trains a small classifier of its digits, and its weights are written as an ONNX model first. The program's
outputs are compared with those of ONNX's own reference implementation. With ``--backend cuda`` it runs on frozen kernels, on a GPU or the
emulated device.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import aicf
from aicf import Tensor

BATCH = 64


def write_classifier(path: Path) -> None:
    """Write a classifier of digits, 64-32-10 with softmax, as an ONNX model."""
    digits = load_digits()
    classifier = MLPClassifier((32,), max_iter=20, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # twenty epochs are enough here, and it says that more would be better
        classifier.fit(digits.data / 16.0, digits.target)
    nodes, tensors, x = [], [], "image"
    for i, (weight, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_, strict=True)):
        tensors += [numpy_helper.from_array(a.astype(np.float32), f"fc{i}.{n}") for n, a in (("weight", weight.T), ("bias", bias))]
        nodes.append(helper.make_node("Gemm", [x, f"fc{i}.weight", f"fc{i}.bias"], [f"z{i}"], name=f"fc{i}", transB=1))
        nodes.append(helper.make_node(*(("Relu", [f"z{i}"], [f"y{i}"]) if i == 0 else ("Softmax", [f"z{i}"], ["probability"]))))
        x = f"y{i}"
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 64])
    probability = helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [image], [probability], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)


def make_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return images of digits where the model takes them, else random numbers in the shape that it names."""
    found = {}
    for value in model.graph.input:
        shape = tuple(d.dim_value or BATCH for d in value.type.tensor_type.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        images = load_digits().data[:BATCH] / 16.0
        drawn = images if shape == images.shape else np.random.default_rng(0).normal(size=shape)
        found[value.name] = drawn.astype(dtype)
    return found


def main() -> None:
    """Import, compile, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="an ONNX file")
    parser.add_argument("--backend", choices=["numpy", "cuda"], default="numpy", help="where the compiled network runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or Path(folder) / "digits.onnx"
        if arguments.model is None:
            write_classifier(path)
        network, source = aicf.frontends.onnx(path), onnx.load(path)
    print(network)
    inputs = make_inputs(source)
    program = aicf.compile(network, [Tensor(x) for x in inputs.values()], backend=arguments.backend)
    outputs = program(*inputs.values())
    start = time.perf_counter()
    outputs = program(*inputs.values())
    found = [y.numpy() for y in (outputs if isinstance(outputs, tuple) else (outputs,))]
    print(f"one run on {arguments.backend}: {1e3 * (time.perf_counter() - start):.2f} ms")
    expected = ReferenceEvaluator(source).run(None, inputs)
    for value, ours, theirs in zip(source.graph.output, found, expected, strict=True):
        print(f"{value.name} {ours.shape}: at most {np.abs(ours - theirs).max():.1e} from ONNX's reference")


if __name__ == "__main__":
    main()
