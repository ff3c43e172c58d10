"""Products of matrices: ``Linear`` and its backward pass, ``MatMul``, and the frozen ops that serve them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.elementwise import ACTIVATIONS, FUNCTIONS
from aicf.opset.types import Attrs, Type, broadcast_shapes

HALVES = ("bfloat16", "float16")


def _check_act(op: str, attrs: Attrs) -> None:
    if attrs["act"] not in ACTIVATIONS:
        raise ValueError(f"{op}: act: expected one of {', '.join(ACTIVATIONS)}, got {attrs['act']!r}")


def _activate(z: Any, act: Any) -> Any:
    return z if act == "none" else FUNCTIONS[str(act)].meaning(z)


def _slope(z: Any, act: Any) -> Any:
    return FUNCTIONS[f"{act}_slope"].meaning(z)


def _wants(attrs: Attrs) -> list[str]:
    return str(attrs["wants"]).split()


# ---- Linear: y = act(x w' + bias), and z, what the activation is applied to, where it is kept


def _infer_linear(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, w, bias = types
    assert x is not None and w is not None
    same_floats("Linear", ("x", "w", "bias"), types)
    _check_act("Linear", attrs)
    if len(x.shape) < 1 or len(w.shape) != 2 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"Linear: x {x.shape} does not fit w {w.shape}: expected x [..., K] and w [N, K]")
    if bias is not None and bias.shape != (w.shape[0],):
        raise ValueError(f"Linear: bias: expected shape ({w.shape[0]},), got {bias.shape}")
    y = x.reshape((*x.shape[:-1], w.shape[0]))
    return (y, y) if attrs["keep_z"] else (y,)


def _linear(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, w, bias = arrays
    z = x @ w.T if bias is None else x @ w.T + bias
    return (_activate(z, attrs["act"]), z) if attrs["keep_z"] else (_activate(z, attrs["act"]),)


def _differentiate_linear(g: Backward, dy: V | None, dz: V | None = None) -> list[V | None]:
    act = str(g.attrs["act"])
    if dy is not None:
        through = dy if act == "none" else g.mul(dy, g.each(f"{act}_slope", g["y" if act == "relu" else "z"]))
        dz = g.total((dz, through))
    wants = [name for name in ("x", "w") if name in g.needed]
    found: dict[str, V] = {}
    if wants:
        operands = g["x"] if "w" in wants else None, g["w"]
        made = g.call("LinearGrad", (dz, *operands, None), {"wants": " ".join(wants)})
        found = dict(zip(wants, made, strict=True))
    if "bias" in g.needed:
        rank = len(g.type_of(dz).shape)
        found["bias"] = g.reduce("sum", dz, tuple(range(rank - 1)))
    return [found.get(name) for name in ("x", "w", "bias")]


def _save_linear(attrs: Attrs, needed: set[str]) -> set[str]:
    slope = {"none": set(), "relu": {"y"}}.get(str(attrs["act"]), {"z"})
    return slope | ({"x", "w"} if "w" in needed else {"w"} if "x" in needed else set())


def _lower_linear(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    x, w, bias = inputs
    shape = b.type_of(x).shape
    flat = b.reshape(x, (math.prod(shape[:-1]), shape[-1]))
    made = b.call("gemm_bias_act", (flat, w, bias), {"act": attrs["act"], "b_layout": "nk", "save_z": attrs["keep_z"]})
    return [b.reshape(value, (*shape[:-1], b.type_of(w).shape[0])) for value in made]


# ---- LinearGrad: of y = x w', and of the activation that made x: dx = (dy w) act'(z), dw = dy' x, dbias = sum of dx's rows


def _infer_linear_grad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    dy, x, w, z = types
    assert dy is not None and w is not None
    same_floats("LinearGrad", ("dy", "x", "w", "z"), types)
    _check_act("LinearGrad", attrs)
    wants = _wants(attrs)
    if not wants or [n for n in ("x", "w", "bias") if n in wants] != wants:
        raise ValueError(f"LinearGrad: wants: expected some of 'x w bias' in this order, got {attrs['wants']!r}")
    if dy.shape[-1] != w.shape[0]:
        raise ValueError(f"LinearGrad: dy {dy.shape} does not fit w {w.shape}: expected dy [..., N] and w [N, K]")
    dx = dy.reshape((*dy.shape[:-1], w.shape[1]))
    if "w" in wants and (x is None or x.shape != dx.shape):
        raise ValueError(f"LinearGrad: x: expected shape {dx.shape}, got {None if x is None else x.shape}")
    if (attrs["act"] != "none") != (z is not None) or (z is not None and z.shape != dx.shape):
        raise ValueError(f"LinearGrad: z: expected shape {dx.shape} with an activation and nothing without, got act {attrs['act']!r}")
    return tuple({"x": dx, "w": w, "bias": dy.reshape((w.shape[1],))}[name] for name in wants)


def _linear_grad(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, x, w, z = arrays
    made = {}
    if "x" in _wants(attrs) or "bias" in _wants(attrs):
        dx = dy @ w
        made["x"] = dx if attrs["act"] == "none" else dx * _slope(z, attrs["act"])
        made["bias"] = made["x"].reshape(-1, w.shape[1]).sum(0)
    if "w" in _wants(attrs):
        made["w"] = dy.reshape(-1, w.shape[0]).T @ x.reshape(-1, w.shape[1])
    return [made[name] for name in _wants(attrs)]


def _differentiate_linear_grad(g: Backward, *douts: V | None) -> list[V | None]:
    """Return the gradients of the product's gradients, which are bilinear; fused ones (with an activation) come after differentiation."""
    if g.attrs["act"] != "none" or "bias" in _wants(g.attrs):
        raise NotImplementedError("LinearGrad: a fused backward pass has no derivative; differentiate before passes fuse")
    grads = dict(zip(_wants(g.attrs), douts, strict=True))
    ddx, ddw = grads.get("x"), grads.get("w")
    found: dict[str, V | None] = {}
    if "dy" in g.needed:
        first = None if ddx is None else g.one("Linear", ddx, g["w"], None)
        second = None if ddw is None else g.one("Linear", g["x"], ddw, None)
        found["dy"] = g.total((first, second))
    if "x" in g.needed and ddw is not None:
        found["x"] = g.one("LinearGrad", g["dy"], None, ddw, None, wants="x")
    if "w" in g.needed and ddx is not None:
        found["w"] = g.one("LinearGrad", g["dy"], ddx, g["w"], None, wants="w")
    return [found.get(name) for name in ("dy", "x", "w", "z")]


def _save_linear_grad(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"dy", "w"} | ({"x"} if "w" in _wants(attrs) else set())


def _lower_linear_grad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    dy, x, w, z = inputs
    shape, (n, k) = b.type_of(dy).shape, b.type_of(w).shape
    rows, wants = math.prod(shape[:-1]), _wants(attrs)
    flat = b.reshape(dy, (rows, n))
    left = None if x is None else b.reshape(x, (rows, k))
    if b.type_of(dy).dtype in HALVES:
        kept = None if z is None else b.reshape(z, (rows, k))
        made = _call_gemm_backward(b, flat, left, w, kept, wants, str(attrs["act"]))
    else:
        made = _multiply_apart(b, flat, left, w, z, wants, str(attrs["act"]))
    return [b.reshape(made[name], (*shape[:-1], k)) if name == "x" else made[name] for name in wants]


def _call_gemm_backward(b: Builder, dy: V, x: V | None, w: V, z: V | None, wants: Sequence[str], act: str) -> dict[str, V]:
    """Return the gradients by one launch, which bf16 and fp16 have."""
    with_dz = "x" in wants or "bias" in wants
    attrs: Attrs = {"act": act, "w_layout": "nk", "with_dz": with_dz, "with_dbias": "bias" in wants}
    made = b.call("gemm_backward", (dy, w, x if "w" in wants else None, z), attrs)
    names = [name for name, there in (("x", with_dz), ("bias", "bias" in wants), ("w", "w" in wants)) if there]
    return dict(zip(names, made, strict=True))


def _multiply_apart(b: Builder, dy: V, x: V | None, w: V, z: V | None, wants: Sequence[str], act: str) -> dict[str, V]:
    """Return the gradients as products of their own, where no kernel makes them together."""
    made: dict[str, V] = {}
    if "x" in wants or "bias" in wants:
        (made["x"],) = b.call("gemm_bias_act", (dy, w, None), {"b_layout": "kn"})
        if act != "none":
            made["x"] = b.mul(made["x"], b.each(f"{act}_slope", z))
        if "bias" in wants:
            made["bias"] = b.reduce("sum", made["x"], (0,))
    if "w" in wants:
        (made["w"],) = b.call("gemm_bias_act", (b.one("Permute", dy, order=(1, 0)), x, None), {"b_layout": "kn"})
    return made


# ---- MatMul: of matrices and of batches of them, which broadcast


def _infer_matmul(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    a, b = types
    assert a is not None and b is not None
    dtype = same_floats("MatMul", ("a", "b"), types)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ValueError(f"MatMul: expected at least 2 dimensions, got {a.shape} and {b.shape}")
    rows, inner = a.shape[-2:][::-1] if attrs["transpose_a"] else a.shape[-2:]
    other, columns = b.shape[-2:][::-1] if attrs["transpose_b"] else b.shape[-2:]
    if inner != other:
        raise ValueError(f"MatMul: inner sizes {inner} and {other} of {a.shape} and {b.shape} differ")
    return (Type(dtype, (*broadcast_shapes("MatMul", a.shape[:-2], b.shape[:-2]), rows, columns)),)


def _matmul(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    a, b = arrays
    return ((np.swapaxes(a, -1, -2) if attrs["transpose_a"] else a) @ (np.swapaxes(b, -1, -2) if attrs["transpose_b"] else b),)


def _differentiate_matmul(g: Backward, dy: V) -> list[V | None]:
    ta, tb = bool(g.attrs["transpose_a"]), bool(g.attrs["transpose_b"])
    da = db = None
    if "a" in g.needed:
        da = g.one("MatMul", g["b"], dy, transpose_a=tb, transpose_b=True) if ta else g.one("MatMul", dy, g["b"], transpose_b=not tb)
        da = g.sum_to(da, g.of("a").shape)
    if "b" in g.needed:
        db = g.one("MatMul", dy, g["a"], transpose_a=True, transpose_b=ta) if tb else g.one("MatMul", g["a"], dy, transpose_a=not ta)
        db = g.sum_to(db, g.of("b").shape)
    return [da, db]


def _lower_matmul(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    left, right = inputs
    if attrs["transpose_a"]:
        left = b.one("Permute", left, order=(1, 0))
    return [b.one("gemm_bias_act", left, right, None, b_layout="nk" if attrs["transpose_b"] else "kn")]


# ---- the frozen ops


def _infer_gemm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    a, b, _ = types
    assert a is not None and b is not None
    same_floats("gemm_bias_act", ("a", "b", "bias"), types)
    _check_act("gemm_bias_act", attrs)
    k, n = b.shape[::-1] if attrs["b_layout"] == "nk" else b.shape
    if a.shape[-1] != k:
        raise ValueError(f"gemm_bias_act: a {a.shape} does not fit b {b.shape} with b_layout {attrs['b_layout']!r}")
    y = Type(a.dtype, (a.shape[0], n))
    return (y, y) if attrs["save_z"] else (y,)


def _gemm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    a, b, bias = arrays
    z = a @ (b.T if attrs["b_layout"] == "nk" else b)
    z = z if bias is None else z + bias
    return (_activate(z, attrs["act"]), z) if attrs["save_z"] else (_activate(z, attrs["act"]),)


def _differentiate_gemm(g: Backward, dy: V | None, dz: V | None = None) -> list[V | None]:
    """Return those of ``Y = act(Z)``, ``Z = A B + bias``: in bf16 and fp16 two launches of gemm_backward, one through the activation."""
    act, is_half = str(g.attrs["act"]), g.of("a").dtype in HALVES
    found: dict[str, V] = {}
    if dy is not None:
        wants_bias = "bias" in g.needed and dz is None
        through, found = _pass_activation(g, dy, act, is_half=is_half, wants_bias=wants_bias)
        dz = g.total((dz, through))
    if "bias" in g.needed and "bias" not in found:
        found["bias"] = g.reduce("sum", dz, (0,))
    wants = [name for name in ("a", "b") if name in g.needed]
    if wants and is_half:
        attrs = {"w_layout": g.attrs["b_layout"], "with_dz": "a" in wants, "with_dbias": False}
        made = g.call("gemm_backward", (dz, g["b"], g["a"] if "b" in wants else None, None), attrs)
        found |= dict(zip(wants, made, strict=True))
    elif wants:
        found |= _find_products(g, dz, wants)
    return [found.get(name) for name in ("a", "b", "bias")]


def _pass_activation(g: Backward, dy: V, act: str, *, is_half: bool, wants_bias: bool) -> tuple[V, dict[str, V]]:
    """Return dY act'(Z), and the gradient of the bias where the same launch makes it."""
    if act == "none":
        return dy, {}
    kept = g["y" if act == "relu" else "z"]
    if not is_half:
        return g.mul(dy, g.each(f"{act}_slope", kept)), {}
    made = g.call("gemm_backward", (dy, None, None, kept), {"act": act, "with_dbias": wants_bias})
    return made[0], {"bias": made[1]} if wants_bias else {}


def _find_products(g: Backward, dz: V, wants: Sequence[str]) -> dict[str, V]:
    """Return dA and dB in fp32 or TF32, which gemm_backward does not have, by gemm_bias_act; TF32 is served for B as [N, K] alone."""
    is_nk, precision = g.attrs["b_layout"] == "nk", g.attrs["precision"]

    def multiply(left: V, right: V, *, as_nk: bool) -> V:
        if precision == "tf32" and not as_nk:
            right, as_nk = g.one("Permute", right, order=(1, 0)), True
        return g.one("gemm_bias_act", left, right, None, b_layout="nk" if as_nk else "kn", precision=precision)

    found = {}
    if "a" in wants:
        found["a"] = multiply(dz, g["b"], as_nk=not is_nk)
    if "b" in wants:
        left, right = (dz, g["a"]) if is_nk else (g["a"], dz)
        found["b"] = multiply(g.one("Permute", left, order=(1, 0)), right, as_nk=False)
    return found


def _save_gemm(attrs: Attrs, needed: set[str]) -> set[str]:
    slope = {"none": set(), "relu": {"y"}}.get(str(attrs["act"]), {"z"})
    return slope | ({"b"} if needed & {"a", "b"} else set()) | ({"a"} if "b" in needed else set())


def _infer_gemm_backward(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    dy, w, x, _ = types
    assert dy is not None
    same_floats("gemm_backward", ("dy", "w", "x", "z"), types)
    _check_act("gemm_backward", attrs)
    if w is None:
        k = dy.shape[1]
    else:
        n, k = w.shape if attrs["w_layout"] == "nk" else w.shape[::-1]
        if n != dy.shape[1]:
            raise ValueError(f"gemm_backward: dy {dy.shape} does not fit w {w.shape} with w_layout {attrs['w_layout']!r}")
    made = [Type(dy.dtype, (dy.shape[0], k))] if attrs["with_dz"] else []
    made += [Type(dy.dtype, (k,))] if attrs["with_dbias"] else []
    return tuple(made + ([w] if x is not None and w is not None else []))


def _gemm_backward(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, w, x, z = arrays
    is_nk, made = attrs["w_layout"] == "nk", []
    if attrs["with_dz"]:
        dz = dy if w is None else dy @ (w if is_nk else w.T)
        dz = dz if attrs["act"] == "none" else dz * _slope(z, attrs["act"])
        made += [dz, dz.sum(0)] if attrs["with_dbias"] else [dz]
    if x is not None:
        made.append(dy.T @ x if is_nk else x.T @ dy)
    return made


_LINEAR: Attrs = {"act": "none", "keep_z": False}
_GEMM: Attrs = {"act": "none", "b_layout": "kn", "precision": "ieee", "save_z": False}
_GEMM_BACKWARD: Attrs = {"act": "none", "w_layout": "nk", "with_dz": True, "with_dbias": False}

OPS = (
    OpDef(
        "Linear",
        ("x", "w", "bias?"),
        ("y", "z"),
        _infer_linear,
        _linear,
        _LINEAR,
        _differentiate_linear,
        _save_linear,
        amp="always",
        lower=_lower_linear,
        keeps={"z": "keep_z"},
    ),
    OpDef(
        "LinearGrad",
        ("dy", "x?", "w", "z?"),
        ("dx", "dw", "dbias"),
        _infer_linear_grad,
        _linear_grad,
        {"wants": "x w", "act": "none"},
        _differentiate_linear_grad,
        _save_linear_grad,
        amp="always",
        lower=_lower_linear_grad,
    ),
    OpDef(
        "MatMul",
        ("a", "b"),
        ("y",),
        _infer_matmul,
        _matmul,
        {"transpose_a": False, "transpose_b": False},
        _differentiate_matmul,
        lambda attrs, needed: ({"b"} if "a" in needed else set()) | ({"a"} if "b" in needed else set()),
        amp="always",
        lower=_lower_matmul,
    ),
    OpDef(
        "gemm_bias_act",
        ("a", "b", "bias?"),
        ("y", "z"),
        _infer_gemm,
        _gemm,
        _GEMM,
        _differentiate_gemm,
        _save_gemm,
        is_frozen=True,
        keeps={"z": "save_z"},
    ),
    OpDef(
        "gemm_backward",
        ("dy", "w?", "x?", "z?"),
        ("dz", "dbias", "dw"),
        _infer_gemm_backward,
        _gemm_backward,
        _GEMM_BACKWARD,
        is_frozen=True,
    ),
)
