"""The frozen products: gemm_bias_act and gemm_backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicf.opset.definition import Arrays, Backward, OpDef, Types, V, same_floats
from aicf.opset.elementwise import FUNCTIONS
from aicf.opset.elementwise import OPS as ELEMENTWISES
from aicf.opset.epilogues import activate, apply_slope, check_act
from aicf.opset.types import Attrs, Type

ELEMENTWISE = ELEMENTWISES[0]


def _infer_gemm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    a, b, _ = types
    assert a is not None and b is not None
    same_floats("gemm_bias_act", ("a", "b", "bias"), types)
    check_act("gemm_bias_act", attrs)
    k, n = b.shape[::-1] if attrs["b_layout"] == "nk" else b.shape
    if a.shape[-1] != k:
        raise ValueError(f"gemm_bias_act: a {a.shape} does not fit b {b.shape} with b_layout {attrs['b_layout']!r}")
    y = Type(a.dtype, (a.shape[0], n))
    return (y, y) if attrs["save_z"] else (y,)


def _gemm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    a, b, bias = arrays
    z = a @ (b.T if attrs["b_layout"] == "nk" else b)
    z = z if bias is None else z + bias
    return (activate(z, attrs["act"]), z) if attrs["save_z"] else (activate(z, attrs["act"]),)


def _differentiate_gemm(g: Backward, dy: V | None, dz: V | None = None) -> list[V | None]:
    """Return those of ``Y = act(Z)``, ``Z = A B + bias``: two launches of gemm_backward, one of them through the activation."""
    act = str(g.attrs["act"])
    found: dict[str, V] = {}
    if dy is not None:
        wants_bias = "bias" in g.needed and dz is None
        through, found = _pass_activation(g, dy, act, wants_bias=wants_bias)
        dz = g.total((dz, through))
    if "bias" in g.needed and "bias" not in found:
        found["bias"] = g.reduce("sum", dz, (0,))
    wants = [name for name in ("a", "b") if name in g.needed]
    if wants and g.attrs["precision"] == "ieee":
        attrs = {"w_layout": g.attrs["b_layout"], "with_dz": "a" in wants, "with_dbias": False}
        made = g.call("gemm_backward", (dz, g["b"], g["a"] if "b" in wants else None, None, None), attrs)
        found |= dict(zip(wants, made, strict=True))
    elif wants:
        found |= _find_products(g, dz, wants)
    return [found.get(name) for name in ("a", "b", "bias")]


def _pass_activation(g: Backward, dy: V, act: str, *, wants_bias: bool) -> tuple[V, dict[str, V]]:
    """Return dY act'(Z), and the gradient of the bias where the same launch makes it."""
    if act == "none":
        return dy, {}
    kept = g["y" if act == "relu" else "z"]
    made = g.call("gemm_backward", (dy, None, None, kept, None), {"act": act, "with_dbias": wants_bias})
    return made[0], {"bias": made[1]} if wants_bias else {}


def _find_products(g: Backward, dz: V, wants: Sequence[str]) -> dict[str, V]:
    """Return dA and dB in TF32, which gemm_backward does not have, by gemm_bias_act, which has it for B as [N, K] alone."""
    is_nk = g.attrs["b_layout"] == "nk"

    def multiply(left: V, right: V, *, as_nk: bool) -> V:
        right = right if as_nk else g.one("Permute", right, order=(1, 0))
        return g.one("gemm_bias_act", left, right, None, b_layout="nk", precision="tf32")

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
    dy, w, x, _, total = types
    assert dy is not None
    same_floats("gemm_backward", ("dy", "w", "x", "z", "dw_total"), types)
    check_act("gemm_backward", attrs)
    if w is None:
        k = dy.shape[1]
    else:
        n, k = w.shape if attrs["w_layout"] == "nk" else w.shape[::-1]
        if n != dy.shape[1]:
            raise ValueError(f"gemm_backward: dy {dy.shape} does not fit w {w.shape} with w_layout {attrs['w_layout']!r}")
    if bool(attrs["accumulate"]) != (total is not None) or (total is not None and (w is None or x is None or total.shape != w.shape)):
        expected = "nothing" if not attrs["accumulate"] else f"w's shape {None if w is None else w.shape}, and x"
        raise ValueError(f"gemm_backward: dw_total: expected {expected} with accumulate={attrs['accumulate']!r}, got {total}")
    made = [Type(dy.dtype, (dy.shape[0], k))] if attrs["with_dz"] else []
    made += [Type(dy.dtype, (k,))] if attrs["with_dbias"] else []
    return tuple(made + ([w] if x is not None and w is not None else []))


def _gemm_backward(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, w, x, z, total = arrays
    is_nk, made = attrs["w_layout"] == "nk", []
    if attrs["with_dz"]:
        dz = dy if w is None else dy @ (w if is_nk else w.T)
        dz = dz if attrs["act"] == "none" else dz * apply_slope(z, attrs["act"])
        made += [dz, dz.sum(0)] if attrs["with_dbias"] else [dz]
    if x is not None:
        dw = dy.T @ x if is_nk else x.T @ dy
        made.append(dw if total is None else total + dw)
    return made


def _find_total(output: int, num_inputs: int, attrs: Attrs) -> int | None:
    """Return that dW, the last output, takes the memory of dw_total, the last input, where it is added to it."""
    is_dw = output == bool(attrs["with_dz"]) + (bool(attrs["with_dz"]) and bool(attrs["with_dbias"]))
    return num_inputs - 1 if attrs["accumulate"] and is_dw else None


def _differentiate_gemm_backward(g: Backward, *douts: V | None) -> list[V | None]:
    """Return the gradients of the products' gradients, which are bilinear, or of the slope alone: dZ = dY act'(Z)."""
    names = [n for n, there in (("dz", g.attrs["with_dz"]), ("dbias", g.attrs["with_dbias"]), ("dw", g.has("w") and g.has("x"))) if there]
    grads = dict(zip(names, douts, strict=False))
    ddz, ddw, ddbias = grads.get("dz"), grads.get("dw"), grads.get("dbias")
    if ddbias is not None:
        ddz = g.total((ddz, g.broadcast(ddbias, g.of("dz").shape)))
    if not g.has("w"):
        return _differentiate_slope(g, ddz)
    if g.attrs["act"] != "none":
        raise NotImplementedError("gemm_backward: a fused backward pass has no derivative; differentiate before passes fuse")
    layout = str(g.attrs["w_layout"])
    turned = "kn" if layout == "nk" else "nk"
    found: dict[str, V | None] = {}
    if "dy" in g.needed:
        first = None if ddz is None else g.one("gemm_bias_act", ddz, g["w"], None, b_layout=layout)
        second = None if ddw is None else g.one("gemm_bias_act", g["x"], ddw, None, b_layout=layout)
        found["dy"] = g.total((first, second))
    if "w" in g.needed and ddz is not None:
        found["w"] = g.one("gemm_backward", g["dy"], g["w"], ddz, None, None, w_layout=layout, with_dz=False)
    if "x" in g.needed and ddw is not None:
        found["x"] = g.one("gemm_bias_act", g["dy"], ddw, None, b_layout=turned)
    if "dw_total" in g.needed:
        found["dw_total"] = ddw
    return [found.get(name) for name in ("dy", "w", "x", "z", "dw_total")]


def _differentiate_slope(g: Backward, ddz: V | None) -> list[V | None]:
    if ddz is None or g.attrs["act"] == "none":
        return [ddz, None, None, None, None]
    function = f"{g.attrs['act']}_slope"
    curve = None
    if "z" in g.needed and FUNCTIONS[function].slopes:  # a step has none
        inner = Backward(g, ELEMENTWISE, {"function": function}, {"x0": g["z"]}, {"x0": g.of("z")}, {"x0"})
        curve = FUNCTIONS[function].slopes[0].rule(inner, g.mul(ddz, g["dy"]))
    return [g.mul(ddz, g.each(function, g["z"])) if "dy" in g.needed else None, None, None, curve, None]


_GEMM: Attrs = {"act": "none", "b_layout": "kn", "precision": "ieee", "save_z": False}
_GEMM_BACKWARD: Attrs = {"act": "none", "w_layout": "nk", "with_dz": True, "with_dbias": False, "accumulate": False}

OPS = (
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
        ("dy", "w?", "x?", "z?", "dw_total?"),
        ("dz", "dbias", "dw"),
        _infer_gemm_backward,
        _gemm_backward,
        _GEMM_BACKWARD,
        _differentiate_gemm_backward,
        lambda attrs, needed: {"dy", "w", "x", "z"},
        is_frozen=True,
        takes=_find_total,
    ),
)
