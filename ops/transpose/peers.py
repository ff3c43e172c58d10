"""PyTorch as a peer of transpose, eager and compiled: a copy of the transposed view into the output. Imported on a real device only."""

from __future__ import annotations

from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        def run(x: Any, y: Any) -> None:
            y.copy_(x.t())

        self._torch = torch
        self._run = compile_for_shapes(torch, run) if is_compiled else run

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the copy on a stream."""
        torch = self._torch
        x, y = (view_in_torch(torch, arguments[name]) for name in ("x", "y"))
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            self._run(x, y)


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
