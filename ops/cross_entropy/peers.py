"""PyTorch as a peer of cross_entropy, eager and compiled. Imported on a real device only.

One launch queues the loss and, where it is asked for, its gradient, as autograd would: in eager mode log-softmax, the loss and the two
backward kernels; compiled, what inductor makes of the same.
"""

from __future__ import annotations

from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer


class _TorchPeer:
    """A :class:`harness.spec.Launchable` on PyTorch, eager or compiled."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        def run(logits: Any, labels: Any, loss: Any, gradient: Any, reduction: str, ignore: int, smoothing: float) -> None:
            taken = logits.detach().requires_grad_(gradient is not None)
            with torch.enable_grad():
                found = torch.nn.functional.cross_entropy(
                    taken, labels, reduction=reduction, ignore_index=ignore, label_smoothing=smoothing
                )
            loss.copy_(found.detach())
            if gradient is not None:
                gradient.copy_(torch.autograd.grad(found, taken)[0])

        self._torch = torch
        self._run = compile_for_shapes(torch, run) if is_compiled else run

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue loss and gradient on a stream."""
        torch = self._torch
        logits, loss, gradient = (view_in_torch(torch, arguments[name]) for name in ("logits", "loss", "dlogits"))
        labels = torch.as_tensor(arguments["labels"], device="cuda")
        options = (arguments["reduction"], int(arguments["ignore_index"]), float(arguments["label_smoothing"]))
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            self._run(logits, labels, loss, gradient, *options)


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchPeer(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchPeer(is_compiled=True), compiles=True),
)
