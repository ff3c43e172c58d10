"""What gemm_backward must give: the float64 reference, the bound on a right kernel's error, and the least work."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Cost, Problem
from harness.spec.bounds import find_sum_factor

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def find_dtype(problem: Problem) -> str:
    """Return the dtype of all tensors."""
    return str(problem.attributes.get("dtype", "bfloat16"))


def is_nk(problem: Problem) -> bool:
    """Return whether W and dW are [N, K]."""
    return problem.attributes.get("w_layout", "nk") == "nk"


def has(problem: Problem, output: str) -> bool:
    """Return whether ``dz``, ``dbias`` or ``dw`` is wanted; dW stored or added."""
    return bool(problem.attributes.get(f"with_{output}", True))


def accumulates(problem: Problem) -> bool:
    """Return whether dW is added to what is there."""
    return bool(problem.attributes.get("accumulate", False))


def stores_weights(problem: Problem) -> bool:
    """Return whether dW is an output of its own."""
    return has(problem, "dw") and not accumulates(problem)


def has_w(problem: Problem) -> bool:
    """Return whether X was multiplied at all; else Y is X."""
    return bool(problem.attributes.get("with_w", True))


def find_act(problem: Problem) -> str:
    """Return the activation between Z and X."""
    return str(problem.attributes.get("act", "none"))


_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def find_slope(act: str, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return act'(z) in float64: its limits, 0 and 1, at the infinities; NaN stays NaN, but relu's slope there is 1, and at 0 it is 0."""
    if act == "none":
        return np.ones_like(z)
    if act == "relu":
        return np.where(z <= 0.0, 0.0, 1.0)
    # Beyond, every slope is 0 or 1 to within 1e-15, and neither overflows nor vanishes: an infinite gradient keeps the slope's sign.
    x = np.clip(z, -40.0, 40.0) if act == "silu" else np.clip(z, -10.0, 10.0)
    if act == "silu":
        s = 1.0 / (1.0 + np.exp(-x))
        return np.asarray(s * (1.0 + x * (1.0 - s)))
    if act == "gelu_tanh":
        # x s(t), with s the sigmoid and (1 + tanh(u)) / 2 = s(2 u).
        s = 1.0 / (1.0 + np.exp(-2.0 * _SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
        return np.asarray(s + x * s * (1.0 - s) * 2.0 * _SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x))
    return np.asarray(0.5 * (1.0 + _erf(x / math.sqrt(2.0))) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi))


def _pass(act: str, gradients: NDArray[np.float64], z: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return gradients times act'(z); relu selects, so that an infinite gradient is gone where the slope is 0."""
    if z is None:
        return gradients
    if act == "relu":
        return np.where(z <= 0.0, 0.0, gradients)
    return gradients * find_slope(act, z)


def _find_z(inputs: Arrays) -> NDArray[np.float64] | None:
    return np.asarray(inputs["z"], np.float64) if "z" in inputs else None


def _as_kn(inputs: Arrays, problem: Problem) -> NDArray[np.float64]:
    return np.asarray(inputs["w"].T if is_nk(problem) else inputs["w"], np.float64)


def _find_gradient(dy: NDArray[np.float64], inputs: Arrays, problem: Problem, *, magnitudes: bool = False) -> NDArray[np.float64]:
    """Return X' gradient, ``dY W'`` or dY itself, or the product of magnitudes."""
    if "w" not in inputs:
        return dy
    w = _as_kn(inputs, problem)
    return np.asarray(dy @ (np.abs(w) if magnitudes else w).T)


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return dZ, dbias and dW, or the total that this is added to, those that are wanted, in float64 from float64 inputs."""
    outputs: dict[str, NDArray[np.float64]] = {}
    dy = np.asarray(inputs["dy"], np.float64)
    with np.errstate(invalid="ignore"):
        if has(problem, "dz"):
            outputs["dz"] = _pass(find_act(problem), _find_gradient(dy, inputs, problem), _find_z(inputs))
        if has(problem, "dbias"):
            outputs["dbias"] = outputs["dz"].sum(axis=0)
        if has(problem, "dw"):
            x = np.asarray(inputs["x"], np.float64)
            product = dy.T @ x if is_nk(problem) else x.T @ dy
            if accumulates(problem):
                outputs["dw_total"] = np.asarray(inputs["dw_total"], np.float64) + product
            else:
                outputs["dw"] = product
    return outputs


# Rounding to the output: unit roundoff, and half of the distance of its subnormals.
_OUTPUT_ROUNDOFF = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
_OUTPUT_UNDERFLOW = {"float32": 0.0, "bfloat16": 2.0**-134, "float16": 2.0**-25}
_SMALLEST_SUBNORMAL = 2.0**-149
_SMALLEST_NORMAL = 2.0**-126
# Error of ops/common/activation_slopes.cuh. none and relu are exact.
_SLOPE_ERROR = {"none": 0.0, "relu": 0.0, "gelu_tanh": 2.0**-18, "gelu_erf": 2.0**-18, "silu": 2.0**-18}


def find_sum_error(dtype: str, k: int, num_elems: int) -> float:
    """Return the error of a product of depth k, before it is rounded to its dtype, in units of ``|A| |B|``.

    fp32: :func:`~harness.spec.bounds.find_sum_factor`. 16 bits: the products are exact; tensor cores add them in groups of at least 4
    (8 or 16 on known GPUs), each group aligned to its largest term and cut off below fp32's last bit or finer: 2^-23 of the magnitudes at
    most (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ Comput. Sci. 7, 2021). The cut has a sign, so that it is
    summed in full. Parts of k that are added later cut no more often.
    """
    if dtype == "float32":
        return find_sum_factor(k, num_elems)
    cuts = (math.ceil(k / 4) + 1) * 2.0**-23
    return cuts / (1.0 - cuts)


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return absolute bounds for dZ, dbias and dW.

    dW: :func:`find_sum_error` of M times ``|X|' |dY|``, and a subnormal for each sum. dZ: that of N times ``|dY| |W|'`` times the slope,
    the slope's own error times the gradient, and a rounding of their product. dbias: the bounds of what is summed, and M roundings, at
    most, of the sum of magnitudes. All are rounded once to their dtype. Where a result is not finite there is no rounding error.
    """
    dtype, act = find_dtype(problem), find_act(problem)
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    bounds: dict[str, NDArray[np.float64]] = {}
    dy = np.abs(np.asarray(inputs["dy"], np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        if "dz" in outputs:
            z = _find_z(inputs)
            slope = np.ones_like(outputs["dz"]) if z is None else np.abs(find_slope(act, z))
            # Without W the gradient is given, and exact.
            depth = n if "w" in inputs else 0
            sum_error = find_sum_error(dtype, depth, m * k) if depth else 0.0
            sums = sum_error * _find_gradient(dy, inputs, problem, magnitudes=True) + (depth + 1) * _SMALLEST_SUBNORMAL
            is_smooth = _SLOPE_ERROR[act] > 0.0
            # The gradient itself is within the bound of the magnitudes, which the slope's error and the rounding are relative to.
            gradient = np.abs(_find_gradient(np.asarray(inputs["dy"], np.float64), inputs, problem)) + sums if is_smooth else 0.0
            # Where relu drops a gradient, an infinite one leaves no error either.
            exact = (
                np.where(slope == 0.0, 0.0, slope * sums)
                + _SLOPE_ERROR[act] * gradient
                + is_smooth * (2.0**-24 * np.abs(outputs["dz"]) + _SMALLEST_NORMAL)
            )
            bounds["dz"] = exact
            if "dbias" in outputs:
                roundings = m * 2.0**-24 / (1.0 - m * 2.0**-24)
                bounds["dbias"] = (1.0 + roundings) * exact.sum(axis=0) + roundings * np.abs(outputs["dz"]).sum(axis=0)
        if has(problem, "dw"):
            x = np.abs(np.asarray(inputs["x"], np.float64))
            magnitudes = dy.T @ x if is_nk(problem) else x.T @ dy
            bound = find_sum_error(dtype, m, n * k) * magnitudes + (m + 1) * _SMALLEST_SUBNORMAL
            if accumulates(problem):
                # One rounding more, of the total.
                bounds["dw_total"] = bound + 2.0**-24 * (np.abs(outputs["dw_total"]) + bound)
            else:
                bounds["dw"] = bound
        for name, bound in bounds.items():
            rounded = bound + _OUTPUT_ROUNDOFF[dtype] * (np.abs(outputs[name]) + bound) + _OUTPUT_UNDERFLOW[dtype]
            bounds[name] = np.where(np.isfinite(outputs[name]), rounded, 0.0)
    return bounds


# Arithmetic of the slopes per element, an exponential, error function or division counted as one.
_SLOPE_FLOPS = {"none": 0, "relu": 1, "gelu_tanh": 14, "gelu_erf": 10, "silu": 8}


def cost(problem: Problem) -> Cost:
    """Return 2MNK flops for each product plus the slopes and sums of columns, and each tensor moved once."""
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    wants_dz, wants_dbias, wants_dw = (has(problem, name) for name in ("dz", "dbias", "dw"))
    act = find_act(problem)
    multiplies = has_w(problem)
    flops = 2.0 * m * n * k * (wants_dz * multiplies + wants_dw) + m * k * (wants_dz * _SLOPE_FLOPS[act] + wants_dbias)
    read = m * (n if multiplies else k) + wants_dz * (multiplies * n * k + (act != "none") * m * k) + wants_dw * m * k
    read += accumulates(problem) * n * k
    # relu may be given its own output for z: then Z and X are one tensor, which is still counted twice.
    written = wants_dz * m * k + wants_dbias * k + wants_dw * n * k
    item_bytes = ITEM_BYTES[find_dtype(problem)]
    return Cost(flops, float(item_bytes * read), float(item_bytes * written), "bf16_tensor" if multiplies and item_bytes == 2 else "fp32")


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the columns of X, and of dZ, dbias and dW with them, at ``places``. Its one axis is number 0."""
    taken = dict(inputs)
    for name in ("x", "z", "w", "dw_total"):
        if name in inputs:
            is_turned = name in ("w", "dw_total") and not is_nk(problem)
            taken[name] = inputs[name][places] if is_turned else inputs[name][:, places]
    if not has_w(problem):
        taken["dy"] = inputs["dy"][:, places]
    return taken, Problem(dict(problem.sizes) | {"K": len(places)}, problem.attributes, suites=problem.suites)


def find_axis(output: str, axis: int, problem: Problem) -> int:
    """Return which axis of an output the columns of X are."""
    return 0 if output == "dbias" or (output in ("dw", "dw_total") and not is_nk(problem)) else 1
