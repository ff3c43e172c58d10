"""cuBLAS as a peer of gemm_bias_act, through CuPy. Imported on a real device only.

What one launch queues, and so what is timed, on the given stream and into the given output arrays (no allocation, no copy):

``cublas_sgemm``
    one ``cublasSgemm`` (fp32 in, out and accumulation; math mode pedantic, so that TF32 is never used). Serves ``act=none`` without bias
    and without Z: the plain product.
``cublas_sgemm_epilogue``
    the same ``cublasSgemm`` into Z (or into Y where Z is not saved), then, unless there is nothing left to do, one elementwise CuPy kernel
    that reads the product and writes act(product + bias) to Y, and the biased product to Z where saved. cuBLAS itself has no epilogue;
    the second pass over the output is part of the time.

cuBLAS is column-major: it is asked for Y^T = B^T A^T on the same memory, with the row strides as leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.spec import Peer

_FLOAT_BYTES = 4

_ACTIVATIONS = {
    "none": "z",
    "relu": "(z < 0.0f ? 0.0f : z)",
    "gelu_tanh": "0.5f * z * (1.0f + tanhf(0.7978845608028654f * (z + 0.044715f * z * z * z)))",
    "gelu_erf": "0.5f * z * erfcf(-0.7071067811865476f * z)",
    "silu": "z / (1.0f + expf(-z))",
}


def _count_row_stride(array: Any) -> int:
    """Return the row stride in elements of a two-dimensional CuPy array with contiguous rows, at least the row's length."""
    return max(int(array.strides[0]) // _FLOAT_BYTES, int(array.shape[1]))


@dataclass
class _Sgemm:
    """The library's handle, set up for each call as the row-major product ``out = a b`` needs it."""

    cupy: Any
    one: Any = field(default_factory=lambda: np.ones((), np.float32))
    zero: Any = field(default_factory=lambda: np.zeros((), np.float32))

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """Queue ``out = a b`` on CuPy's current stream. a [M, K], b [K, N], out [M, N], float32 with contiguous rows."""
        cublas = self.cupy.cuda.cublas
        handle = self.cupy.cuda.device.get_cublas_handle()
        math_mode, pointer_mode = cublas.getMathMode(handle), cublas.getPointerMode(handle)
        cublas.setMathMode(handle, cublas.CUBLAS_PEDANTIC_MATH if hasattr(cublas, "CUBLAS_PEDANTIC_MATH") else 2)
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
        (m, k), n = a.shape, b.shape[1]
        try:
            cublas.sgemm(
                handle,
                cublas.CUBLAS_OP_N,
                cublas.CUBLAS_OP_N,
                n,
                m,
                k,
                self.one.ctypes.data,
                b.data.ptr,
                _count_row_stride(b),
                a.data.ptr,
                _count_row_stride(a),
                self.zero.ctypes.data,
                out.data.ptr,
                _count_row_stride(out),
            )
        finally:
            cublas.setPointerMode(handle, pointer_mode)
            cublas.setMathMode(handle, math_mode)


class _CublasPeer:
    """A :class:`harness.spec.Launchable` on cuBLAS. ``plain_only`` restricts it to the plain product."""

    def __init__(self, *, plain_only: bool) -> None:
        import cupy

        self._cupy = cupy
        self._plain_only = plain_only
        self._sgemm = _Sgemm(cupy)
        self._epilogues: dict[tuple[str, bool], Any] = {}

    def supports(self, **arguments: Any) -> str:
        """Return the reason why the plain peer does not serve a problem with an epilogue, else ""."""
        if self._plain_only and (arguments["act"] != "none" or arguments["bias"] is not None or arguments["z"] is not None):
            return "cuBLAS's sgemm has no epilogue: act must be none, without bias and z"
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: cuBLAS holds a workspace of its own in its handle."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the product and the epilogue on a stream."""
        cupy = self._cupy
        a, b, bias, y, z, act = (arguments[name] for name in ("a", "b", "bias", "y", "z", "act"))
        with cupy.cuda.ExternalStream(stream):
            product = cupy.asarray(y if z is None else z)
            self._sgemm.multiply(cupy.asarray(a), cupy.asarray(b), product)
            if act == "none" and bias is None and z is None:
                return
            addend = np.float32(0.0) if bias is None else cupy.asarray(bias)
            outputs = (cupy.asarray(y),) if z is None else (product, cupy.asarray(y))
            self._find_epilogue(act, saves_z=z is not None)(product, addend, *outputs)

    def _find_epilogue(self, act: str, *, saves_z: bool) -> Any:
        if (act, saves_z) not in self._epilogues:
            self._epilogues[act, saves_z] = self._cupy.ElementwiseKernel(
                "float32 product, float32 addend",
                "float32 saved, float32 y" if saves_z else "float32 y",
                f"const float z = product + addend; {'saved = z; ' if saves_z else ''}y = {_ACTIVATIONS[act]};",
                f"epilogue_{act}{'_z' if saves_z else ''}",
            )
        return self._epilogues[act, saves_z]


PEERS = (
    Peer("cublas_sgemm", "cupy", lambda: _CublasPeer(plain_only=True)),
    Peer("cublas_sgemm_epilogue", "cupy", lambda: _CublasPeer(plain_only=False)),
)
