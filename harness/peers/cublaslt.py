"""cuBLASLt's matrix product with fused epilogue, called through ctypes: a library to measure against.

Only what the peers need: ``D = act(A B + bias)``, or ``D = (A B) * act'(Z)`` with the sums of its columns; one heuristic choice or the
fastest of many. The constants are those of NVIDIA's public header ``cublasLt.h`` (CUDA 12 and 13).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from types import MappingProxyType

from contract.libraries.binding import SONAME, find_cublaslt
from contract.libraries.binding import Product as Call

WORKSPACE_BYTES = 64 << 20

_COMPUTE_32F = 68
_COMPUTE_32F_FAST_TF32 = 77
_CUDA_R_32F = 0
CUDA_DTYPES: Mapping[str, int] = MappingProxyType({"float16": 2, "bfloat16": 14, "float32": 0})
# CUBLASLT_EPILOGUE_*: the flags of an activation, of a bias, and of a saved pre-activation; act' of it with the bias' gradient.
_ACTIVATIONS: Mapping[str, int] = MappingProxyType({"none": 1, "relu": 2, "gelu_tanh": 32})
_BIAS_FLAG, _SAVED_FLAG, _DEFAULT = 4, 128, 1
_DGELU, _BIAS_GRADIENT_FLAG = 192, 16
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _AUX_POINTER, _AUX_LD = 3, 4, 7, 8, 11, 12  # CUBLASLT_MATMUL_DESC_*
_MAX_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algo", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Product:
    """``Y[m, n] = act(X W + bias)``, row-major, 16-bit floats or fp32 in TF32.

    X is [m, k], or [k, m] where ``is_km``; W is [n, k], or [k, n] where ``is_kn``.
    Tensors are device addresses, strides are in elements.
    ``z`` is the pre-activation, which the library can keep for ``gelu_tanh`` alone; 0 where there is none, as for ``bias``.
    Where ``is_gradient``, ``Y = (X W) * act'(z)`` for ``gelu_tanh``, and ``bias`` becomes the sums of Y's columns.
    """

    x: int
    w: int
    bias: int
    y: int
    z: int
    m: int
    n: int
    k: int
    ldx: int
    ldw: int
    ldy: int
    ldz: int
    dtype: str
    act: str
    is_kn: bool
    is_km: bool = False
    is_gradient: bool = False


def find_unsupported(act: str, *, saves_z: bool) -> str:
    """Return why the library has no epilogue for it, or ""."""
    if act not in _ACTIVATIONS:
        return f"cuBLASLt has no epilogue for act={act}; it has {', '.join(_ACTIVATIONS)}"
    if saves_z and act != "gelu_tanh":
        return f"cuBLASLt keeps the pre-activation for gelu_tanh alone, not for act={act}"
    return ""


def make_call(product: Product) -> Call | None:
    """Return a product as the project's own binding takes it; None for one that it is not for: a gradient, Z, X as [k, m], TF32."""
    if product.is_gradient or product.z or product.is_km or product.dtype == "float32":
        return None
    p = product
    addresses = (p.x, p.w, p.bias or None, p.y)
    return Call(
        *(*addresses, p.m, p.n, p.k, p.ldx, p.ldw, p.ldy),
        *(CUDA_DTYPES[p.dtype], _COMPUTE_32F, _ACTIVATIONS[p.act], 0 if p.is_kn else 1),
    )


class CublasLt:
    """The library's handle and its workspace (device memory of the caller's, at least :data:`WORKSPACE_BYTES`)."""

    def __init__(self, workspace: int) -> None:
        self._library = _open_library()
        self._workspace = workspace
        self._handle = c_void_p()
        self._call("cublasLtCreate", byref(self._handle))

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed with cublasStatus_t {status}")

    def plan(self, product: Product, max_algorithms: int) -> Plan:
        """Ask the heuristic for up to ``max_algorithms`` algorithms; raises RuntimeError when it knows none."""
        dtype = CUDA_DTYPES[product.dtype]
        description = c_void_p()
        compute = _COMPUTE_32F_FAST_TF32 if product.dtype == "float32" else _COMPUTE_32F
        self._call("cublasLtMatmulDescCreate", byref(description), c_int(compute), c_int(_CUDA_R_32F))

        def set_attribute(attribute: int, value: object, size: int) -> None:
            self._call("cublasLtMatmulDescSetAttribute", description, c_int(attribute), byref(value), c_size_t(size))  # type: ignore[arg-type]

        # The library is column-major: it computes Y^T = W^T X^T, and W [n, k] is its transposed operand.
        set_attribute(_TRANSA, c_int32(0 if product.is_kn else 1), 4)
        set_attribute(_TRANSB, c_int32(1 if product.is_km else 0), 4)
        if product.is_gradient:
            epilogue = _DGELU | (_BIAS_GRADIENT_FLAG if product.bias else 0)
        else:
            epilogue = _ACTIVATIONS[product.act]
            if product.bias:
                epilogue = (0 if epilogue == _DEFAULT else epilogue) | _BIAS_FLAG
            if product.z:
                epilogue |= _SAVED_FLAG
        if product.bias:
            set_attribute(_BIAS_POINTER, c_void_p(product.bias), 8)
        if product.z:
            set_attribute(_AUX_POINTER, c_void_p(product.z), 8)
            set_attribute(_AUX_LD, c_int64(product.ldz), 8)
        set_attribute(_EPILOGUE, c_int32(epilogue), 4)
        shapes = [
            (product.n, product.k, product.ldw) if product.is_kn else (product.k, product.n, product.ldw),
            (product.m, product.k, product.ldx) if product.is_km else (product.k, product.m, product.ldx),
            (product.n, product.m, product.ldy),
        ]
        layouts = []
        for rows, columns, stride in shapes:
            layout = c_void_p()
            self._call("cublasLtMatrixLayoutCreate", byref(layout), c_int(dtype), c_uint64(rows), c_uint64(columns), c_int64(stride))
            layouts.append(layout)
        preference = c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", byref(preference))
        limit = c_size_t(WORKSPACE_BYTES)
        self._call("cublasLtMatmulPreferenceSetAttribute", preference, c_int(_MAX_WORKSPACE), byref(limit), c_size_t(8))
        found = (_Heuristic * max_algorithms)()
        count = c_int(0)
        w, x, y = layouts
        operands = (self._handle, description, w, x, y, y, preference, c_int(max_algorithms), found, byref(count))
        self._call("cublasLtMatmulAlgoGetHeuristic", *operands)
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        if count.value == 0:
            raise RuntimeError("cuBLASLt's heuristic knows no algorithm for this problem")
        return Plan(product, description, (w, x, y), [found[i] for i in range(count.value)])

    def run(self, plan: Plan, stream: int) -> None:
        """Queue the product with the plan's chosen algorithm."""
        one, zero = c_float(1.0), c_float(0.0)
        chosen = plan.algorithms[plan.chosen]
        w, x, y = plan.layouts
        p = plan.product
        self._call(
            "cublasLtMatmul",
            *(self._handle, plan.description, byref(one), c_void_p(p.w), w, c_void_p(p.x), x, byref(zero), c_void_p(p.y), y),
            *(c_void_p(p.y), y, byref(chosen.algo), c_void_p(self._workspace), c_size_t(WORKSPACE_BYTES), c_void_p(stream)),
        )

    def choose_fastest(self, plan: Plan, measure: Callable[[Callable[[], None]], float], stream: int) -> None:
        """Run every algorithm of a plan under ``measure``, which returns a time, and keep the fastest; one that refuses is left out."""
        best = float("inf")
        fastest = 0
        for index in range(len(plan.algorithms)):
            plan.chosen = index
            try:
                spent = measure(lambda: self.run(plan, stream))
            except RuntimeError:
                continue
            if spent < best:
                best, fastest = spent, index
        plan.chosen = fastest


@dataclass
class Plan:
    """One product's descriptors, the algorithms that the heuristic proposed, best guess first, and the one in use."""

    product: Product
    description: c_void_p
    layouts: tuple[c_void_p, c_void_p, c_void_p]
    algorithms: list[_Heuristic]
    chosen: int = 0


def _open_library() -> ctypes.CDLL:
    """Return the library that the project's binding opens, too."""
    try:
        return ctypes.CDLL(find_cublaslt())
    except OSError:
        raise ImportError(f"{SONAME} is not on this machine: pip install nvidia-cublas") from None
