"""What gemm_bias_act must give: the float64 reference, the bound on a right kernel's error, and the least work."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Cost, Problem
from harness.spec.expressions import draw_words, find_kept

FLOAT_BYTES = 4
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNIT_ROUNDOFF = 2.0**-24
SMALLEST_SUBNORMAL = 2.0**-149
SMALLEST_NORMAL = 2.0**-126


def find_dtype(problem: Problem) -> str:
    """Return the dtype of all tensors."""
    return str(problem.attributes.get("dtype", "float32"))


def is_tf32(problem: Problem) -> bool:
    """Return whether fp32 inputs may be rounded to TF32."""
    return problem.attributes.get("precision", "ieee") == "tf32"


def is_nk(problem: Problem) -> bool:
    """Return whether B is [N, K]."""
    return problem.attributes.get("b_layout", "kn") == "nk"


def drops(problem: Problem) -> bool:
    """Return whether elements of Y are dropped."""
    return bool(problem.attributes.get("with_dropout", False))


# Where a sample of rows and columns was cut from: the elements' numbers are those of the whole.
_ROW_PLACES, _COLUMN_PLACES, _WHOLE_COLUMNS = "row_places", "column_places", "whole_columns"


def _find_kept_shares(inputs: Arrays, problem: Problem) -> NDArray[np.float64]:
    """Return what each element of Y is multiplied by: 0 where it is dropped, else 1 / (1 - p)."""
    rows = np.asarray(inputs.get(_ROW_PLACES, np.arange(problem.sizes["M"])), np.int64)
    columns = np.asarray(inputs.get(_COLUMN_PLACES, np.arange(problem.sizes["N"])), np.int64)
    whole = int(inputs.get(_WHOLE_COLUMNS, problem.sizes["N"]))
    seed, offset = (int(v) for v in inputs["counter"])
    p = float(inputs["p"])
    kept = find_kept(draw_words(rows[:, np.newaxis] * whole + columns[np.newaxis], seed, offset), p)
    return np.where(kept, 1.0 / (1.0 - p) if p < 1.0 else 0.0, 0.0)


def _drop(y: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(shares > 0.0, y * shares, 0.0)


_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def activate(name: str, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply an activation in float64. NaN stays NaN; GELU and SiLU of -inf are NaN, as their formulas (-inf * 0) have it."""
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "relu":
            return np.where(z < 0.0, 0.0, z)
        if name == "gelu_tanh":
            return np.asarray(0.5 * z * (1.0 + np.tanh(_SQRT_2_OVER_PI * (z + 0.044715 * z**3))))
        if name == "gelu_erf":
            return np.asarray(0.5 * z * (1.0 + _erf(z / math.sqrt(2.0))))
        if name == "silu":
            return np.asarray(z / (1.0 + np.exp(-z)))
    return z


def _list_addends(inputs: Arrays) -> list[NDArray[np.generic]]:
    """Return what is added to the product, each broadcast over its rows: bias and residual, where they are given."""
    return [inputs[name] for name in ("bias", "residual") if name in inputs]


def _find_preactivation(inputs: Arrays, problem: Problem) -> NDArray[np.float64]:
    b = inputs["b"].T if is_nk(problem) else inputs["b"]
    z: NDArray[np.float64] = np.matmul(inputs["a"].astype(np.float64), b.astype(np.float64))
    for addend in _list_addends(inputs):
        z += addend.astype(np.float64)
    return z


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return Y, and Z where the problem saves it, in float64 from float64 inputs."""
    with np.errstate(invalid="ignore"):
        z = _find_preactivation(inputs, problem)
    y = activate(str(problem.attributes.get("act", "none")), z)
    y = _drop(y, _find_kept_shares(inputs, problem)) if drops(problem) else y
    return {"y": y, "z": z} if problem.attributes.get("save_z", False) else {"y": y}


# Largest slope of each activation: an error in z comes out at most this much larger.
_LIPSCHITZ = {"none": 1.0, "relu": 1.0, "gelu_tanh": 1.13, "gelu_erf": 1.13, "silu": 1.1}
# Error of the activation itself in units of u |z|. x sigmoid(t): rounding t costs at most 0.3 * 4, expf, the sum and the division 2 ulp
# each; erfcf is good to 4 ulp and its argument's rounding costs 1. none and relu are exact.
_ACTIVATION_ROUNDINGS = {"none": 0.0, "relu": 0.0, "gelu_tanh": 12.0, "gelu_erf": 12.0, "silu": 12.0}
# 1 - p, its reciprocal, and the product with it.
_DROPOUT_ROUNDINGS = 3.0
# Chance that a right kernel breaks the bound anywhere in one problem.
_FAILURE_PROBABILITY = 1e-9


def find_rounding_factor(num_roundings: int, num_elems: int) -> float:
    """Return g such that ``num_roundings`` successive roundings err by at most g times the sum of magnitudes.

    The smaller of the deterministic n u / (1 - n u) and the probabilistic exp(l sqrt(n) u + n u^2 / (1 - u)) - 1 of N. J. Higham and
    T. Mary, "A new approach to probabilistic rounding error analysis" (SIAM J. Sci. Comput. 41, 2019), Theorem 2.4, with l chosen so
    that all ``num_elems`` results together hold it with probability 1 - 1e-9. Both hold for every order of summation, fused or not.
    """
    n, u = num_roundings, UNIT_ROUNDOFF
    spread = math.sqrt(2.0 * math.log(2.0 * n * num_elems / _FAILURE_PROBABILITY))
    return min(n * u / (1.0 - n * u), math.expm1(spread * math.sqrt(n) * u + n * u * u / (1.0 - u)))


# Rounding to a 16-bit output: unit roundoff, and half of the distance of its subnormals.
_OUTPUT_ROUNDOFF = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
_OUTPUT_UNDERFLOW = {"float32": 0.0, "bfloat16": 2.0**-134, "float16": 2.0**-25}
# Error of apply_rough_activation in units of |z|: ops/common/activations.cuh.
_ROUGH_ACTIVATION = 3.0 * 2.0**-13


# An operand that a TF32 tensor core takes by cutting off 13 of 23 bits errs by less than this; where it is rounded, by half of it.
_TF32_CUT = 2.0**-10


def find_sum_error(dtype: str, k: int, num_elems: int, *, tf32: bool = False, num_addends: int = 1) -> float:
    """Return the error of z, before it is rounded to its own dtype, in units of ``|A| |B| + |bias| + |residual|``.

    TF32's products have 22 bits, and are added as those of 16-bit floats; what is lost before that is :func:`_find_operand_error`.

    fp32: :func:`find_rounding_factor`. 16-bit floats have exact products, which tensor cores add in groups of at least 4 (8 or 16 on
    known GPUs), each group aligned to its largest term and cut off below fp32's last bit or finer: 2^-23 of the magnitudes at most
    (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ Comput. Sci. 7, 2021). The cut has a sign, so that it is summed
    in full.
    """
    if dtype == "float32" and not tf32:
        return find_rounding_factor(k + num_addends, num_elems)
    cuts = (math.ceil(k / 4) + num_addends) * 2.0**-23
    return cuts / (1.0 - cuts)


def _find_operand_error(
    a: NDArray[np.float64], b: NDArray[np.float64], magnitudes: NDArray[np.float64], z: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the error that TF32 operands bring to ``A B``, which is about z; ``magnitudes`` is ``|A| |B|``.

    The smaller of two bounds. Whatever the operands: 2 cuts of the magnitudes. And with probability 1 - 1e-9 over all elements: what all
    operands lose in common, at most 2 cuts of the product itself, and what they lose apart, by Hoeffding's inequality for 2 K independent
    terms within one cut of a b each (W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58, 1963).
    """
    both = _TF32_CUT * (2.0 + _TF32_CUT)
    spread = math.sqrt(0.5 * math.log(2.0 * z.size / _FAILURE_PROBABILITY))
    apart = spread * _TF32_CUT * np.sqrt(2.0 * np.matmul(a * a, b * b))
    return np.minimum(both * magnitudes, both * np.abs(z) + (1.0 + _TF32_CUT) * apart)


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return absolute bounds for Y and Z.

    Z: :func:`find_sum_error` times ``|A| |B| + |bias| + |residual|``, in TF32 :func:`_find_operand_error`, plus a subnormal for each
    of the K + 1 roundings, K + 2 with a residual (underflow).
    Y: that times the activation's slope, plus the activation's own error; what dropout keeps, times 1 / (1 - p), in three roundings more;
    what it drops has no error. Both are then rounded to their dtype, where that is no fp32.
    Where Z is infinite the result has no rounding error.
    """
    act, dtype = str(problem.attributes.get("act", "none")), find_dtype(problem)
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    is_smooth = _ACTIVATION_ROUNDINGS[act] > 0.0
    is_exact = dtype == "float32" and not is_tf32(problem)
    own_error = _ACTIVATION_ROUNDINGS[act] * UNIT_ROUNDOFF if is_exact else is_smooth * _ROUGH_ACTIVATION
    with np.errstate(invalid="ignore", over="ignore"):
        b = inputs["b"].T if is_nk(problem) else inputs["b"]
        magnitudes = np.matmul(np.abs(inputs["a"]), np.abs(b))
        z = outputs["z"] if "z" in outputs else _find_preactivation(inputs, problem)
        addends = sum((np.abs(addend) for addend in _list_addends(inputs)), np.zeros(()))
        num_addends = 2 if "residual" in inputs else 1
        lost = _find_operand_error(inputs["a"], b, magnitudes, np.abs(z) + addends) if is_tf32(problem) else 0.0
        factor = find_sum_error(dtype, k, m * n, tf32=is_tf32(problem), num_addends=num_addends)
        bound_z = factor * (magnitudes + addends) + (k + num_addends) * SMALLEST_SUBNORMAL + lost
        bound_y = _LIPSCHITZ[act] * bound_z + own_error * np.abs(z) + is_smooth * SMALLEST_NORMAL
        if drops(problem):
            shares = _find_kept_shares(inputs, problem)
            bound_y = _drop(bound_y, shares)
            bound_y = bound_y + 1.01 * _DROPOUT_ROUNDINGS * UNIT_ROUNDOFF * (np.abs(outputs["y"]) + bound_y)
        bounds = {
            name: bound + _OUTPUT_ROUNDOFF[dtype] * (np.abs(exact) + bound) + _OUTPUT_UNDERFLOW[dtype]
            for name, bound, exact in (("y", bound_y, outputs["y"]), ("z", bound_z, z))
        }
    finite = np.isfinite(z)
    return {name: np.where(finite, bounds[name], 0.0) for name in outputs}


# Arithmetic of the activations per element, an exponential, error function or division counted as one.
_ACTIVATION_FLOPS = {"none": 0, "relu": 1, "gelu_tanh": 8, "gelu_erf": 4, "silu": 4}


_DROPOUT_BYTES = 4 + 16  # p, seed and offset


def cost(problem: Problem) -> Cost:
    """Return 2MNK flops plus the epilogue's (random words are no flops), and each tensor moved once."""
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    with_bias = bool(problem.attributes.get("with_bias", False))
    save_z = bool(problem.attributes.get("save_z", False))
    with_residual = bool(problem.attributes.get("with_residual", False))
    with_dropout = drops(problem)
    act = str(problem.attributes.get("act", "none"))
    item_bytes = ITEM_BYTES[find_dtype(problem)]
    return Cost(
        flops=2.0 * m * n * k + m * n * (_ACTIVATION_FLOPS[act] + int(with_bias) + int(with_residual) + int(with_dropout)),
        bytes_read=float(
            item_bytes * (m * k + k * n + (n if with_bias else 0) + (m * n if with_residual else 0))
            + (_DROPOUT_BYTES if with_dropout else 0)
        ),
        bytes_written=float(item_bytes * m * n * (2 if save_z else 1)),
        # bf16 and fp16 share the tensor cores' rate.
        flop_unit="bf16_tensor" if item_bytes < FLOAT_BYTES else "tf32_tensor" if is_tf32(problem) else "fp32",
    )


# ------------------------------------------------------------------------------------------------------------------- sample


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows (axis 0) or columns (axis 1) of Y and Z at ``places``."""
    taken = dict(inputs)
    if axis == 0:
        taken |= {name: inputs[name][places] for name in ("a", "residual") if name in inputs}
    else:
        taken["b"] = inputs["b"][places] if is_nk(problem) else inputs["b"][:, places]
        taken |= {name: inputs[name][..., places] for name in ("bias", "residual") if name in inputs}
    if drops(problem):
        name = (_ROW_PLACES, _COLUMN_PLACES)[axis]
        taken[name] = np.asarray(inputs[name][places] if name in inputs else places, np.int64)
        taken.setdefault(_WHOLE_COLUMNS, np.asarray(problem.sizes["N"], np.int64))
    sizes = dict(problem.sizes) | {"MN"[axis]: len(places)}
    return taken, Problem(sizes, problem.attributes, suites=problem.suites)
