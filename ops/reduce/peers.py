"""PyTorch as a peer of reduce, eager and compiled. Imported on a real device only.

One launch queues the reduction of the same meaning, in the dtype of the result, and its copy into the given output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer

_DIMS = {"columns": 1, "rows": 0, "all": (0, 1)}


def _make_reductions(torch: Any) -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Return by name what reduces ``x`` over ``dim`` with sums in ``dtype``."""
    norm = torch.linalg.vector_norm
    return {
        "sum": lambda x, dim, dtype: torch.sum(x, dim, dtype=dtype),
        "mean": lambda x, dim, dtype: torch.mean(x, dim, dtype=dtype),
        "max": lambda x, dim, dtype: torch.amax(x, dim),
        "min": lambda x, dim, dtype: torch.amin(x, dim),
        "argmax": lambda x, dim, dtype: torch.argmax(x, None if isinstance(dim, tuple) else dim),
        "l2_norm": lambda x, dim, dtype: norm(x, 2.0, dim, dtype=dtype),
        "sum_squares": lambda x, dim, dtype: norm(x, 2.0, dim, dtype=dtype).square(),
    }


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        def make_run(reduce: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], None]:
            def run(x: Any, y: Any, dim: Any) -> None:
                y.copy_(reduce(x, dim, y.dtype))

            return compile_for_shapes(torch, run) if is_compiled else run

        self._torch = torch
        self._runs = {name: make_run(reduce) for name, reduce in _make_reductions(torch).items()}

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the reduction on a stream."""
        torch = self._torch
        x = view_in_torch(torch, arguments["x"])
        is_index = arguments["reduction"] == "argmax"
        y = torch.as_tensor(arguments["y"], device="cuda") if is_index else view_in_torch(torch, arguments["y"])
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            self._runs[arguments["reduction"]](x, y, _DIMS[arguments["over"]])


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
