"""Linear layers and their backward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.epilogues import activate, apply_slope, check_act
from aicf.opset.types import Attrs, Type


def _wants(attrs: Attrs) -> list[str]:
    return str(attrs["wants"]).split()


# How a weight lies in memory: [N, K], as layers have it, or [K, N], as products do.
LAYOUTS = ("nk", "kn")


def _read_weight(op: str, w: Type, attrs: Attrs) -> tuple[int, int]:
    """Return N and K of a weight; raises ValueError for a layout that there is not."""
    if attrs["w_layout"] not in LAYOUTS:
        raise ValueError(f"{op}: w_layout: expected one of {', '.join(LAYOUTS)}, got {attrs['w_layout']!r}")
    if len(w.shape) != 2:
        raise ValueError(f"{op}: w: expected a matrix, got shape {w.shape}")
    n, k = w.shape if attrs["w_layout"] == "nk" else w.shape[::-1]
    return n, k


# ---- Linear: y = act(x w' + bias), and z, what the activation is applied to, where it is kept


def _infer_linear(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, w, bias = types
    assert x is not None and w is not None
    same_floats("Linear", ("x", "w", "bias"), types)
    check_act("Linear", attrs)
    n, k = _read_weight("Linear", w, attrs)
    if len(x.shape) < 1 or x.shape[-1] != k:
        wanted = "[N, K]" if attrs["w_layout"] == "nk" else "[K, N]"
        raise ValueError(f"Linear: x {x.shape} does not fit w {w.shape}: expected x [..., K] and w {wanted}")
    if bias is not None and bias.shape != (n,):
        raise ValueError(f"Linear: bias: expected shape ({n},), got {bias.shape}")
    y = x.reshape((*x.shape[:-1], n))
    return (y, y) if attrs["keep_z"] else (y,)


def _linear(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, w, bias = arrays
    turned = w.T if attrs["w_layout"] == "nk" else w
    z = x @ turned if bias is None else x @ turned + bias
    return (activate(z, attrs["act"]), z) if attrs["keep_z"] else (activate(z, attrs["act"]),)


def _differentiate_linear(g: Backward, dy: V | None, dz: V | None = None) -> list[V | None]:
    act = str(g.attrs["act"])
    if dy is not None:
        through = dy if act == "none" else g.mul(dy, g.each(f"{act}_slope", g["y" if act == "relu" else "z"]))
        dz = g.total((dz, through))
    wants = [name for name in ("x", "w") if name in g.needed]
    found: dict[str, V] = {}
    if wants:
        operands = g["x"] if "w" in wants else None, g["w"]
        made = g.call("LinearGrad", (dz, *operands, None, None), {"wants": " ".join(wants), "w_layout": g.attrs["w_layout"]})
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
    made = b.call("gemm_bias_act", (flat, w, bias), {"act": attrs["act"], "b_layout": attrs["w_layout"], "save_z": attrs["keep_z"]})
    return [b.reshape(value, (*shape[:-1], _read_weight("Linear", b.type_of(w), attrs)[0])) for value in made]


# ---- LinearGrad: of y = x w', and of the activation that made x: dx = (dy w) act'(z), dw = dy' x (+ total), dbias = sum of dx's rows


def _infer_linear_grad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    dy, x, w, z, total = types
    assert dy is not None and w is not None
    same_floats("LinearGrad", ("dy", "x", "w", "z", "total"), types)
    check_act("LinearGrad", attrs)
    wants = _wants(attrs)
    if not wants or [n for n in ("x", "w", "bias") if n in wants] != wants:
        raise ValueError(f"LinearGrad: wants: expected some of 'x w bias' in this order, got {attrs['wants']!r}")
    n, k = _read_weight("LinearGrad", w, attrs)
    if dy.shape[-1] != n:
        wanted = "[N, K]" if attrs["w_layout"] == "nk" else "[K, N]"
        raise ValueError(f"LinearGrad: dy {dy.shape} does not fit w {w.shape}: expected dy [..., N] and w {wanted}")
    dx = dy.reshape((*dy.shape[:-1], k))
    if "w" in wants and (x is None or x.shape != dx.shape):
        raise ValueError(f"LinearGrad: x: expected shape {dx.shape}, got {None if x is None else x.shape}")
    if (attrs["act"] != "none") != (z is not None) or (z is not None and z.shape != dx.shape):
        raise ValueError(f"LinearGrad: z: expected shape {dx.shape} with an activation and nothing without, got act {attrs['act']!r}")
    if total is not None and ("w" not in wants or total.shape != w.shape):
        raise ValueError(
            f"LinearGrad: total: expected shape {w.shape} where w's gradient is wanted and nothing elsewhere, got {total.shape}"
        )
    return tuple({"x": dx, "w": w, "bias": dy.reshape((k,))}[name] for name in wants)


def _linear_grad(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, x, w, z, total = arrays
    made, is_nk = {}, attrs["w_layout"] == "nk"
    n, k = w.shape if is_nk else w.shape[::-1]
    if "x" in _wants(attrs) or "bias" in _wants(attrs):
        dx = dy @ (w if is_nk else w.T)
        made["x"] = dx if attrs["act"] == "none" else dx * apply_slope(z, attrs["act"])
        made["bias"] = made["x"].reshape(-1, k).sum(0)
    if "w" in _wants(attrs):
        rows, columns = dy.reshape(-1, n), x.reshape(-1, k)
        dw = rows.T @ columns if is_nk else columns.T @ rows
        made["w"] = dw if total is None else total + dw
    return [made[name] for name in _wants(attrs)]


def _differentiate_linear_grad(g: Backward, *douts: V | None) -> list[V | None]:
    """Return the gradients of the product's gradients, which are bilinear; fused ones (with an activation) come after differentiation."""
    if g.attrs["act"] != "none" or "bias" in _wants(g.attrs):
        raise NotImplementedError("LinearGrad: a fused backward pass has no derivative; differentiate before passes fuse")
    grads, layout = dict(zip(_wants(g.attrs), douts, strict=True)), str(g.attrs["w_layout"])
    ddx, ddw = grads.get("x"), grads.get("w")
    found: dict[str, V | None] = {}
    if "dy" in g.needed:
        first = None if ddx is None else g.one("Linear", ddx, g["w"], None, w_layout=layout)
        second = None if ddw is None else g.one("Linear", g["x"], ddw, None, w_layout=layout)
        found["dy"] = g.total((first, second))
    if "x" in g.needed and ddw is not None:
        found["x"] = g.one("LinearGrad", g["dy"], None, ddw, None, None, wants="x", w_layout=layout)
    if "w" in g.needed and ddx is not None:
        found["w"] = g.one("LinearGrad", g["dy"], ddx, g["w"], None, None, wants="w", w_layout=layout)
    if "total" in g.needed:
        found["total"] = ddw
    return [found.get(name) for name in ("dy", "x", "w", "z", "total")]


def _save_linear_grad(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"dy", "w"} | ({"x"} if "w" in _wants(attrs) else set())


def _lower_linear_grad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    dy, x, w, z, total = inputs
    shape, (n, k) = b.type_of(dy).shape, _read_weight("LinearGrad", b.type_of(w), attrs)
    rows, wants = math.prod(shape[:-1]), _wants(attrs)
    flat = b.reshape(dy, (rows, n))
    left = None if x is None else b.reshape(x, (rows, k))
    kept = None if z is None else b.reshape(z, (rows, k))
    made = _call_gemm_backward(b, (flat, w, left if "w" in wants else None, kept, total), wants, attrs)
    return [b.reshape(made[name], (*shape[:-1], k)) if name == "x" else made[name] for name in wants]


def _call_gemm_backward(b: Builder, inputs: Sequence[V | None], wants: Sequence[str], own: Attrs) -> dict[str, V]:
    """Return the gradients by one call of the frozen op."""
    with_dz = "x" in wants or "bias" in wants
    attrs: Attrs = {
        "act": own["act"],
        "w_layout": own["w_layout"],
        "with_dz": with_dz,
        "with_dbias": "bias" in wants,
        "accumulate": inputs[-1] is not None,
    }
    made = b.call("gemm_backward", inputs, attrs)
    names = [name for name, there in (("x", with_dz), ("bias", "bias" in wants), ("w", "w" in wants)) if there]
    return dict(zip(names, made, strict=True))


_LINEAR: Attrs = {"act": "none", "keep_z": False, "w_layout": "nk"}

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
        ("dy", "x?", "w", "z?", "total?"),
        ("dx", "dw", "dbias"),
        _infer_linear_grad,
        _linear_grad,
        {"wants": "x w", "act": "none", "w_layout": "nk"},
        _differentiate_linear_grad,
        _save_linear_grad,
        amp="always",
        lower=_lower_linear_grad,
    ),
)
