"""Rules for backward passes: by op, what its gradients are, made with other frozen ops. An op without a rule has no backward pass.

What a frozen op does not do (a sum over rows alone, a sum of two gradients) is left to PyTorch, whose autograd is what calls these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from device import UnavailableError

Options = Mapping[str, Any]
Gradients = dict[str, Any]
# (inputs by name, options of the recorded call by name, its outputs, gradients of the outputs, names of inputs whose gradient is needed)
FindGradients = Callable[[Mapping[str, Any], Options, Sequence[Any], Sequence[Any], frozenset[str]], Gradients]


@dataclass(frozen=True)
class Rule:
    """How an op is differentiated.

    ``find`` returns gradients by input. ``extend`` returns the options that a recorded call is run with: outputs that the backward pass
    needs and the caller did not ask for come behind those that it did.
    """

    find: FindGradients
    extend: Callable[[Options], Options] = dict


def find_function(op: str, wanted: str) -> Callable[..., Any]:
    """Return the function of a frozen op that a backward pass of ``op`` needs; raises :class:`UnavailableError` where it is not frozen."""
    import aicf.ops

    try:
        function: Callable[..., Any] = getattr(aicf.ops, wanted)
    except AttributeError as error:
        raise UnavailableError(
            f"{op}: its backward pass needs op {wanted}, which is not frozen: `make op={wanted} promote` freezes it; "
            "without gradients call it under torch.no_grad()"
        ) from error
    return function


def keep_z(options: Options) -> Options:
    """Return options under which gemm_bias_act keeps Z where act'(Z) is not told by Y."""
    return {**options, "save_z": options["save_z"] or options["act"] not in ("none", "relu")}


def find_gemm_gradients(
    inputs: Mapping[str, Any], options: Options, outputs: Sequence[Any], grads: Sequence[Any], needed: frozenset[str]
) -> Gradients:
    """Return those of ``Y = act(Z)``, ``Z = A B + bias``.

    With dZ = dY act'(Z) they are dA = dZ B', dB = A' dZ, and dbias the sum of dZ's rows. In bf16 and fp16 that is two launches of
    gemm_backward: dZ with dbias, which an activation asks for, and dA with dB.
    """
    dy, dz = grads[0], grads[1] if len(grads) > 1 else None
    is_half = inputs["a"].element_size() == 2
    found: Gradients = {}
    if dy is not None:
        through_act, found = _pass_activation(dy, options["act"], outputs, is_half, wants_bias="bias" in needed and dz is None)
        dz = through_act if dz is None else through_act + dz
    if dz is None:
        return {}
    dz = _with_rows(dz)
    if "bias" in needed and "bias" not in found:
        found["bias"] = dz.sum(0)
    if needed & {"a", "b"}:
        find = _find_half_products if is_half else _find_products
        found |= find(dz, inputs["a"], inputs["b"], options, needed)
    return found


def _pass_activation(dy: Any, act: str, outputs: Sequence[Any], is_half: bool, wants_bias: bool) -> tuple[Any, Gradients]:
    """Return dY act'(Z), and the gradient of the bias where the same launch makes it."""
    if act == "none":
        return dy, {}
    z = outputs[0] if act == "relu" else outputs[-1]  # relu's slope is told by its output
    if is_half:
        backward = find_function("gemm_bias_act", "gemm_backward")
        made = backward(_with_rows(dy), z=z, act=act, with_dbias=wants_bias)
        return (made[0], {"bias": made[1]}) if wants_bias else (made, {})
    import torch

    if act == "relu":
        return torch.ops.aten.threshold_backward(dy, z, 0), {}
    if act == "silu":
        return torch.ops.aten.silu_backward(dy, z), {}
    return torch.ops.aten.gelu_backward(dy, z, approximate="tanh" if act == "gelu_tanh" else "none"), {}


def _find_half_products(dz: Any, a: Any, b: Any, options: Options, needed: frozenset[str]) -> Gradients:
    """Return dA and dB, those that are needed, by one launch of gemm_backward."""
    wants_a, wants_b = "a" in needed, "b" in needed
    backward = find_function("gemm_bias_act", "gemm_backward")
    made = backward(dz, w=b, x=a if wants_b else None, w_layout=options["b_layout"], with_dz=wants_a, with_dbias=False)
    return dict(zip(("a", "b"), made, strict=True)) if wants_a and wants_b else {"a" if wants_a else "b": made}


def _find_products(dz: Any, a: Any, b: Any, options: Options, needed: frozenset[str]) -> Gradients:
    """Return dA and dB of an op in fp32 or TF32, which gemm_backward does not have, by gemm_bias_act."""
    is_nk = options["b_layout"] == "nk"
    found: Gradients = {}
    if "a" in needed:
        found["a"] = _multiply(dz, b, options["precision"], is_nk=not is_nk)
    if "b" in needed:
        left, right = (dz, a) if is_nk else (a, dz)
        found["b"] = _multiply(left.t().contiguous(), right, options["precision"], is_nk=False)
    return found


def _multiply(left: Any, right: Any, precision: str, *, is_nk: bool) -> Any:
    """Return ``left right``, or where ``right`` is [N, K] ``left right'``; TF32 is served for that layout alone."""
    if precision == "tf32" and not is_nk:
        right, is_nk = right.t().contiguous(), True
    multiply = find_function("gemm_bias_act", "gemm_bias_act")
    return multiply(_with_rows(left), _with_rows(right), b_layout="nk" if is_nk else "kn", precision=precision)


def _with_rows(matrix: Any) -> Any:
    """Return a matrix whose rows are contiguous and apart; a gradient may be one number seen as all (``sum().backward()``)."""
    rows, columns = matrix.stride()
    return matrix if columns == 1 and rows >= matrix.shape[1] else matrix.contiguous()


RULES: Mapping[str, Rule] = {"gemm_bias_act": Rule(find_gemm_gradients, keep_z)}
