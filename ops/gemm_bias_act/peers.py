"""cuBLAS, cuBLASLt and PyTorch as peers of gemm_bias_act. Imported on a real device only.

What one launch queues, and so what is timed, on the given stream and into the given output arrays (no allocation, no copy):

``cublas_sgemm``
    one ``cublasSgemm`` (fp32 in, out and accumulation; math mode pedantic, so that TF32 is never used). Serves ``act=none`` without bias
    and without Z: the plain product.
``cublas_sgemm_epilogue``
    the same ``cublasSgemm`` into Z (or into Y where Z is not saved), then, unless there is nothing left to do, one elementwise CuPy kernel
    that reads the product and writes act(product + bias) to Y, and the biased product to Z where saved. cuBLAS itself has no epilogue;
    the second pass over the output is part of the time.

``cublaslt``, ``cublaslt_best32``
    bf16, fp16 and TF32: ``cublasLtMatmul`` with the fused epilogue, the heuristic's first choice, or the fastest of its first 32 (timed
    hot, five launches each, when a problem is first met); a workspace of 64 MiB at most. The first choice goes through the binding by
    which calls of the framework may get the library (``contract/libraries``). Act none, relu and gelu_tanh; Z with gelu_tanh alone.
``torch_eager``
    bf16 and fp16: ``torch.addmm`` into Y, or into Z where it is saved, then the activation's own kernel.
``torch_compile``, ``torch_max_autotune``
    the same as one function under ``torch.compile``, in its default mode and tuned (without CUDA graphs, which would own the buffers), for
    the activations that cuBLASLt lacks: silu and gelu_erf.
``triton``
    the kernel of ``peer_triton.py``, epilogue fused, autotuned per problem.
``cutlass``
    ``peer_cutlass.cu``: CUTLASS 3.x from the wheel's headers, bf16 with bias and SiLU or erf-GELU fused; the faster of two schedules.

cuBLAS is column-major: it is asked for Y^T = B^T A^T on the same memory, with the row strides as leading dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from device.cuda import share_stream
from harness.peers.cublaslt import Product, find_unsupported
from harness.peers.libraries import TunedCublasLt, compile_for_shapes, find_stride, view_in_torch
from harness.spec import Launchable, Peer

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

    def multiply(self, a: Any, b: Any, out: Any, *, is_nk: bool) -> None:
        """Queue ``out = a b`` on CuPy's current stream. a [M, K], b [K, N] or [N, K], out [M, N], float32 with contiguous rows."""
        cublas = self.cupy.cuda.cublas
        handle = self.cupy.cuda.device.get_cublas_handle()
        math_mode, pointer_mode = cublas.getMathMode(handle), cublas.getPointerMode(handle)
        cublas.setMathMode(handle, cublas.CUBLAS_PEDANTIC_MATH if hasattr(cublas, "CUBLAS_PEDANTIC_MATH") else 2)
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
        (m, k), n = a.shape, out.shape[1]
        try:
            cublas.sgemm(
                handle,
                cublas.CUBLAS_OP_T if is_nk else cublas.CUBLAS_OP_N,
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
        if arguments["a"].dtype != np.float32 or arguments["precision"] != "ieee":
            return "cuBLAS's sgemm is for float32 in full precision"
        if self._plain_only and (arguments["act"] != "none" or arguments["bias"] is not None or arguments["z"] is not None):
            return "cuBLAS's sgemm has no epilogue: act must be none, without bias and z"
        if _is_given(arguments, "residual", "p"):
            return "the cuBLAS peer adds no residual and drops nothing"
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: cuBLAS holds a workspace of its own in its handle."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the product and the epilogue on a stream."""
        cupy = self._cupy
        a, b, bias, y, z, act = (arguments[name] for name in ("a", "b", "bias", "y", "z", "act"))
        with share_stream(stream):
            product = cupy.asarray(y if z is None else z)
            self._sgemm.multiply(cupy.asarray(a), cupy.asarray(b), product, is_nk=arguments["b_layout"] == "nk")
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


def _is_given(arguments: Mapping[str, Any], *names: str) -> bool:
    return any(arguments[name] is not None for name in names)


def _name_dtype(array: Any) -> str:
    return str(array.dtype.name)


class _CublasLtPeer:
    """A :class:`harness.spec.Launchable` on cuBLASLt, with the heuristic's first choice or the fastest of ``num_algorithms``."""

    def __init__(self, num_algorithms: int) -> None:
        self._library = TunedCublasLt(num_algorithms)

    def supports(self, **arguments: Any) -> str:
        """Return the reason why there is no epilogue for the problem, else ""."""
        if _name_dtype(arguments["a"]) == "float32" and arguments["precision"] != "tf32":
            return "cuBLASLt is timed for bfloat16, float16 and TF32"
        if _is_given(arguments, "residual", "p"):
            return "the cuBLASLt peer adds no residual and drops nothing"
        reason = find_unsupported(arguments["act"], saves_z=arguments["z"] is not None)
        return reason or self._library.try_plan(_make_product(arguments))

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return what the heuristic's first choice wants; 0 where the workspace is the peer's own."""
        return self._library.find_workspace(_make_product(arguments))

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the product on a stream."""
        self._library.run(_make_product(arguments), stream, workspace)


def _make_product(arguments: Any) -> Product:
    a, b, bias, y, z = (arguments[name] for name in ("a", "b", "bias", "y", "z"))
    return Product(
        *(a.address, b.address, 0 if bias is None else bias.address, y.address, 0 if z is None else z.address),
        *(a.shape[0], y.shape[1], a.shape[1]),
        *(find_stride(a), find_stride(b), find_stride(y), find_stride(z)),
        dtype=_name_dtype(a),
        act=arguments["act"],
        is_kn=arguments["b_layout"] == "kn",
    )


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager, or compiled where ``mode`` names one of torch.compile's."""

    def __init__(self, mode: str = "") -> None:
        import torch

        self._torch = torch
        self._mode = mode
        self._is_compiled = bool(mode)
        self._compiled: dict[str, Any] = {}

    def supports(self, **arguments: Any) -> str:
        """Return the reason why a problem is not timed, else ""."""
        if _name_dtype(arguments["a"]) == "float32":
            return "PyTorch is timed for bfloat16 and float16 alone"
        if _is_given(arguments, "p"):
            return "PyTorch draws other numbers"
        if self._is_compiled and (arguments["act"] not in ("silu", "gelu_erf") or _is_given(arguments, "z", "residual")):
            return "torch.compile is timed for silu and gelu_erf without z and residual"
        return "" if arguments["bias"] is not None else "PyTorch is timed with a bias"

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue product and activation on a stream."""
        torch = self._torch
        act = arguments["act"]
        a, b, bias, y, z = (view_in_torch(torch, arguments[name]) for name in ("a", "b", "bias", "y", "z"))
        b = b.t() if arguments["b_layout"] == "nk" else b
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            if self._is_compiled:
                self._compile(act)(a, b, bias, y)
                return
            product = y if z is None else z
            torch.addmm(bias, a, b, out=product)
            if arguments["residual"] is not None:
                product.add_(view_in_torch(torch, arguments["residual"]))
            if act == "relu":
                torch.ops.aten.clamp_min.out(product, 0.0, out=y)
            elif act == "silu":
                torch.ops.aten.silu.out(product, out=y)
            elif act != "none":
                torch.ops.aten.gelu.out(product, approximate="tanh" if act == "gelu_tanh" else "none", out=y)
            elif z is not None:
                y.copy_(product)

    def _compile(self, act: str) -> Any:
        if act not in self._compiled:
            functional = self._torch.nn.functional
            activate = functional.silu if act == "silu" else functional.gelu

            def run(a: Any, b: Any, bias: Any, y: Any) -> None:
                y.copy_(activate(functional.linear(a, b.t(), bias)))

            self._compiled[act] = compile_for_shapes(self._torch, run, mode=self._mode)
        return self._compiled[act]


class _TritonPeer(_TorchPeer):
    """A :class:`harness.spec.Launchable`: the project's own Triton kernel, tuned when a problem is first met."""

    def __init__(self) -> None:
        super().__init__()
        from .peer_triton import multiply

        self._multiply = multiply

    def supports(self, **arguments: Any) -> str:
        """Return the reason why a problem is not timed, else ""; tunes the kernel."""
        if _name_dtype(arguments["a"]) == "float32" or arguments["b_layout"] != "nk":
            return "the Triton peer is for 16-bit floats with b as [n, k]"
        if arguments["bias"] is None or _is_given(arguments, "z", "residual", "p"):
            return "the Triton peer has a bias, no z, no residual and no dropout"
        self.launch(workspace=0, stream=self._torch.cuda.Stream().cuda_stream, **arguments)
        self._torch.cuda.synchronize()
        return ""

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the product on a stream."""
        a, b, bias, y = (view_in_torch(self._torch, arguments[name]) for name in ("a", "b", "bias", "y"))
        with self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream)):
            self._multiply(a, b, bias, y, arguments["act"])


def _open_cutlass() -> Launchable:
    from .peer_cutlass import CutlassPeer

    return CutlassPeer()


PEERS = (
    Peer("cublas_sgemm", "cupy", lambda: _CublasPeer(plain_only=True)),
    Peer("cublas_sgemm_epilogue", "cupy", lambda: _CublasPeer(plain_only=False)),
    Peer("cublaslt", "cublasLt", lambda: _CublasLtPeer(1)),
    Peer("cublaslt_best32", "cublasLt", lambda: _CublasLtPeer(32)),
    Peer("torch_eager", "torch", _TorchPeer),
    Peer("torch_compile", "torch", lambda: _TorchPeer("default"), compiles=True),
    Peer("torch_max_autotune", "torch", lambda: _TorchPeer("max-autotune-no-cudagraphs"), compiles=True),
    Peer("triton", "triton", _TritonPeer),
    Peer("cutlass", "nvidia-cutlass", _open_cutlass),
)
