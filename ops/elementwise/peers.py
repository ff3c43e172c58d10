"""PyTorch as a peer of elementwise, eager and compiled. Imported on a real device only.

A chain's text is run as it is written: each function by PyTorch's own, outputs converted to their dtype. Compiled, inductor fuses it as the
op does. Dropout is PyTorch's: it draws from another generator, so that a chain with it is timed beside these peers and not compared with
their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer
from harness.spec.expressions import Chain, Name, Node, Number

from .chains import CHAINS, NUMBERS


def _list_functions(torch: Any) -> dict[str, Callable[..., Any]]:
    functional = torch.nn.functional
    backward = torch.ops.aten
    named = ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "erf", "tanh", "sigmoid", "relu", "abs", "neg", "sign", "div")
    own = {name: getattr(torch, name) for name in (*named, "add", "sub", "mul", "pow", "where", "lt", "le", "gt", "ge", "eq", "ne")}
    return own | {
        "and": torch.logical_and,
        "or": torch.logical_or,
        "not": torch.logical_not,
        "max": torch.maximum,
        "min": torch.minimum,
        "fma": lambda a, b, c: a * b + c,
        "clip": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "relu_grad": lambda x: (x > 0).to(x.dtype),
        "gelu_grad": lambda x: backward.gelu_backward(torch.ones_like(x), x),
        "gelu_tanh_grad": lambda x: backward.gelu_backward(torch.ones_like(x), x, approximate="tanh"),
        "silu_grad": lambda x: backward.silu_backward(torch.ones_like(x), x),
        "tanh_grad_from_y": lambda y: 1 - y * y,
        "sigmoid_grad_from_y": lambda y: y * (1 - y),
        "bf16": lambda x: x.to(torch.bfloat16),
        "f16": lambda x: x.to(torch.float16),
    }


def write_run(torch: Any, chain: Chain) -> Callable[..., None]:
    """Return what runs a chain on its inputs and writes its outputs, inputs first."""
    functions = _list_functions(torch)

    def evaluate(node: Node, known: dict[str, Any]) -> Any:
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Name):
            return known[node.name]
        arguments = [evaluate(argument, known) for argument in node.arguments]
        if node.function == "keep":
            return torch.rand_like(known[chain.inputs[0].name]) >= arguments[0]
        if node.function in ("add", "sub", "mul", "div") and not all(isinstance(a, torch.Tensor) for a in arguments):
            left, right = arguments
            return {"add": lambda: left + right, "sub": lambda: left - right, "mul": lambda: left * right, "div": lambda: left / right}[
                node.function
            ]()
        return functions[node.function](*arguments)

    def run(*arrays: Any) -> None:
        known = dict(zip((o.name for o in chain.inputs), arrays, strict=False))
        for target, node in chain.assignments:
            known[target] = evaluate(node, known)
        for operand, target in zip(chain.outputs, arrays[len(chain.inputs) :], strict=True):
            target.copy_(known[operand.name])

    return run


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        self._torch = torch
        self._is_compiled = is_compiled
        self._runs: dict[str, Callable[..., None]] = {}

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the chain on a stream."""
        torch, chain = self._torch, CHAINS[NUMBERS[arguments["chain"]]]
        if chain.name not in self._runs:
            run = write_run(torch, chain)
            self._runs[chain.name] = compile_for_shapes(torch, run) if self._is_compiled else run
        names = [*(f"in{i}" for i in range(len(chain.inputs))), *(f"out{i}" for i in range(len(chain.outputs)))]
        arrays = [_view(torch, arguments[name]) for name in names]
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            self._runs[chain.name](*arrays)


def _view(torch: Any, array: Any) -> Any:
    return torch.as_tensor(array, device="cuda") if array.dtype == np.bool_ else view_in_torch(torch, array)


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
