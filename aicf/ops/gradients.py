"""Rules for backward passes: by op, what its gradients are, made with other frozen ops. An op without a rule has no backward pass.

What a frozen op does not do (the slope of an activation, a sum over rows) is left to PyTorch, whose autograd is what calls these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aicf.registry import list_ops
from device import UnavailableError

# (inputs by name, options by name, outputs, gradients of the outputs, names of inputs whose gradient is needed) to gradients by name.
Rule = Callable[[Mapping[str, Any], Mapping[str, Any], Sequence[Any], Sequence[Any], frozenset[str]], dict[str, Any]]


def find_function(op: str, backward: str) -> Callable[..., Any]:
    """Return the function of a frozen backward op; raises :class:`UnavailableError` where it is not frozen."""
    if backward not in list_ops():
        raise UnavailableError(
            f"{op}: its backward pass needs op {backward}, which is not frozen: `make op={backward} promote` freezes it; "
            "without gradients call it under torch.no_grad()"
        )
    import aicf.ops

    function: Callable[..., Any] = getattr(aicf.ops, backward)
    return function


def find_gemm_gradients(
    inputs: Mapping[str, Any], options: Mapping[str, Any], outputs: Sequence[Any], grads: Sequence[Any], needed: frozenset[str]
) -> dict[str, Any]:
    """Return those of ``Y = act(Z)``, ``Z = A B + bias``.

    With dZ = dY act'(Z) they are dA = dZ B', dB = A' dZ, and dbias the sum of dZ's rows.
    """
    a, b, layout = inputs["a"], inputs["b"], options["b_layout"]
    dz = _find_slope(inputs, options, outputs, grads[0]).contiguous()
    if len(grads) > 1 and grads[1] is not None:
        dz = dz + grads[1]
    found = {"bias": dz.sum(0)} if "bias" in needed else {}
    if needed & {"a", "b"}:
        backward = find_function("gemm_bias_act", "gemm_backward")
        if "a" in needed:
            found["a"] = backward(dz, w=b, w_layout=layout, with_dbias=False)
        if "b" in needed:
            found["b"] = backward(dz, x=a, w_layout=layout, with_dbias=False)
    return found


def _find_slope(inputs: Mapping[str, Any], options: Mapping[str, Any], outputs: Sequence[Any], dy: Any) -> Any:
    """Return dY act'(Z); Z is computed again where it was not kept."""
    import torch

    act = options["act"]
    if dy is None:
        return torch.zeros_like(outputs[0])
    if act == "none":
        return dy
    if act == "relu":
        return dy * (outputs[0] > 0)
    if len(outputs) > 1:
        z = outputs[1]
    else:
        import aicf.ops

        z = aicf.ops.gemm_bias_act(*(inputs[n] for n in ("a", "b", "bias")), **{**options, "act": "none", "save_z": False})
    if act == "silu":
        return torch.ops.aten.silu_backward(dy, z)
    return torch.ops.aten.gelu_backward(dy, z, approximate="tanh" if act == "gelu_tanh" else "none")


RULES: dict[str, Rule] = {"gemm_bias_act": find_gemm_gradients}
