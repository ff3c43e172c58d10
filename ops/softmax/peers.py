"""PyTorch as a peer of softmax, eager and compiled. Imported on a real device only.

One launch queues, on the given stream and into the given output: ``torch_eager`` ATen's softmax kernel, ``torch_compile`` what inductor
makes of softmax and a copy into the output, for each shape anew.
"""

from __future__ import annotations

from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        def run(x: Any, y: Any) -> None:
            y.copy_(torch.softmax(x, dim=1))

        self._torch = torch
        self._compiled = compile_for_shapes(torch, run) if is_compiled else None

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue softmax on a stream."""
        torch = self._torch
        x, y = (view_in_torch(torch, arguments[name]) for name in ("x", "y"))
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            if self._compiled is not None:
                self._compiled(x, y)
            else:
                torch.ops.aten._softmax.out(x, 1, False, out=y)


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
