"""cuBLASLt and PyTorch as peers of gemm_backward. Imported on a real device only.

What one launch queues, and so what is timed, on the given stream and into the given output arrays:

``cublaslt``, ``cublaslt_best32``
    two ``cublasLtMatmul``: dZ and dbias with the epilogue ``DGELU_BGRAD`` (``DGELU`` without dbias; none where act is none), then dW. The
    heuristic's first choice, or the fastest of its first 32 for each. ``DRELU`` wants the bit mask that only its own forward pass writes.
``torch_autograd``
    the kernels that autograd queues for ``linear(act(z), w)``, without autograd's own time on the host: ``mm``, the activation's backward
    kernel, ``sum`` over the rows, ``mm``.
``torch_compile``
    the same four as one function under ``torch.compile``.
"""

from __future__ import annotations

from typing import Any

from harness.peers.cublaslt import Product
from harness.peers.libraries import TunedCublasLt, compile_for_shapes, find_stride, view_in_torch
from harness.spec import Peer


def _find_address(array: Any) -> int:
    return 0 if array is None else int(array.address)


class _CublasLtPeer:
    """A :class:`harness.spec.Launchable` on cuBLASLt."""

    def __init__(self, num_algorithms: int) -> None:
        self._library = TunedCublasLt(num_algorithms)

    def supports(self, **arguments: Any) -> str:
        """Return the reason why there is no epilogue for the problem, else ""."""
        act = arguments["act"]
        if arguments["dw_total"] is not None:
            return "cuBLASLt is timed for dw that is stored"
        if arguments["w"] is None and arguments["dz"] is not None:
            return "cuBLASLt has no epilogue without a product"
        if arguments["dz"] is not None and act not in ("none", "gelu_tanh"):
            return f"cuBLASLt has no epilogue for the gradient of act={act} from z"
        if act == "none" and arguments["dbias"] is not None:
            return "cuBLASLt sums the columns of a product only with DGELU or DRELU"
        return next(filter(None, (self._library.try_plan(product) for product in _make_products(arguments))), "")

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: the workspace is the peer's own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the products on a stream."""
        for product in _make_products(arguments):
            self._library.run(product, stream)


def _make_products(arguments: Any) -> list[Product]:
    dy, w, x, z, dz, dbias, dw = (arguments[name] for name in ("dy", "w", "x", "z", "dz", "dbias", "dw"))
    is_nk = arguments["w_layout"] == "nk"
    m, n = dy.shape
    dtype = str(dy.dtype.name)
    products = []
    if dz is not None:
        is_gradient = arguments["act"] != "none"
        addresses = (dy, w, dbias if is_gradient else None, dz, z if is_gradient else None)
        strides = (dy, w, dz, z if is_gradient else None)
        sizes = (m, dz.shape[1], n)
        products.append(
            Product(
                *map(_find_address, addresses),
                *sizes,
                *map(find_stride, strides),
                dtype=dtype,
                act=arguments["act"],
                is_kn=is_nk,
                is_gradient=is_gradient,
            )
        )
    if dw is not None:
        rows, columns = (dy, x) if is_nk else (x, dy)
        sizes = (*dw.shape, m)
        addresses = (rows, columns, None, dw, None)
        strides = (rows, columns, dw, None)
        products.append(
            Product(*map(_find_address, addresses), *sizes, *map(find_stride, strides), dtype=dtype, act="none", is_kn=True, is_km=True)
        )
    return products


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        self._torch = torch
        self._is_compiled = is_compiled
        self._compiled: dict[tuple[str, bool], Any] = {}

    def supports(self, **arguments: Any) -> str:
        """Return why a problem is not timed compiled, else ""."""
        if self._is_compiled and any(arguments[name] is None for name in ("dz", "dbias", "dw")):
            return "torch.compile is timed for dz, dbias and dw together"
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the kernels on a stream."""
        torch = self._torch
        act, is_nk = arguments["act"], arguments["w_layout"] == "nk"
        names = ("dy", "w", "x", "z", "dz", "dbias", "dw", "dw_total")
        dy, w, x, z, dz, dbias, dw, dw_total = (view_in_torch(torch, arguments[name]) for name in names)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            if self._is_compiled:
                self._compile(act, is_nk)(dy, w, x, z, dz, dbias, dw)
                return
            if dz is not None:
                if w is not None:
                    torch.mm(dy, w if is_nk else w.t(), out=dz)
                self._pass(act, dy if w is None else dz, z, dz)
            if dbias is not None:
                torch.sum(dz, 0, out=dbias)
            if x is None:
                return
            factors = (dy.t(), x) if is_nk else (x.t(), dy)
            if dw is not None:
                torch.mm(*factors, out=dw)
            if dw_total is not None:
                dw_total.addmm_(*factors)

    def _pass(self, act: str, gradient: Any, z: Any, dz: Any) -> None:
        aten = self._torch.ops.aten
        if act == "relu":
            aten.threshold_backward.grad_input(gradient, z, 0.0, grad_input=dz)
        elif act == "silu":
            aten.silu_backward.grad_input(gradient, z, grad_input=dz)
        elif act != "none":
            aten.gelu_backward.grad_input(gradient, z, approximate="tanh" if act == "gelu_tanh" else "none", grad_input=dz)
        elif gradient is not dz:
            dz.copy_(gradient)

    def _compile(self, act: str, is_nk: bool) -> Any:
        if (act, is_nk) not in self._compiled:
            torch = self._torch
            aten = torch.ops.aten

            def run(dy: Any, w: Any, x: Any, z: Any, dz: Any, dbias: Any, dw: Any) -> None:
                gradient = torch.mm(dy, w if is_nk else w.t())
                if act == "relu":
                    gradient = aten.threshold_backward(gradient, z, 0.0)
                elif act == "silu":
                    gradient = aten.silu_backward(gradient, z)
                elif act != "none":
                    gradient = aten.gelu_backward(gradient, z, approximate="tanh" if act == "gelu_tanh" else "none")
                dz.copy_(gradient)
                dbias.copy_(gradient.sum(0))
                dw.copy_(torch.mm(dy.t(), x) if is_nk else torch.mm(x.t(), dy))

            self._compiled[act, is_nk] = compile_for_shapes(torch, run)
        return self._compiled[act, is_nk]


PEERS = (
    Peer("cublaslt", "cublasLt", lambda: _CublasLtPeer(1)),
    Peer("cublaslt_best32", "cublasLt", lambda: _CublasLtPeer(32)),
    Peer("torch_autograd", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
