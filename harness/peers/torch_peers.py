"""PyTorch as two peers of an op, eager and compiled, from functions of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer

# Is given ``torch``, and returns what queues one launch: a function of the op's tensors, and of its attributes by name where the peer names
# any, that writes into the outputs among them.
MakeRun = Callable[[Any], Callable[..., None]]


class TorchPeer:
    """A :class:`harness.spec.Launchable` that runs a function on the given stream, compiled for each shape if asked to."""

    def __init__(self, tensors: Sequence[str], make_run: MakeRun, attributes: Sequence[str], *, is_compiled: bool) -> None:
        import torch

        run = make_run(torch)
        self._torch = torch
        self._tensors, self._attributes = tuple(tensors), tuple(attributes)
        self._run = compile_for_shapes(torch, run) if is_compiled else run

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the function on a stream."""
        views = [view_in_torch(self._torch, arguments[name]) for name in self._tensors]
        with self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream)):
            self._run(*views, **{name: arguments[name] for name in self._attributes})


def make_torch_peers(tensors: Sequence[str], *, eager: MakeRun, compiled: MakeRun, attributes: Sequence[str] = ()) -> tuple[Peer, Peer]:
    """Return ``torch_eager`` and ``torch_compile`` of an op whose launch takes these tensors; PyTorch is imported when one is opened."""
    return (
        Peer("torch_eager", "torch", lambda: TorchPeer(tensors, eager, attributes, is_compiled=False)),
        Peer("torch_compile", "torch", lambda: TorchPeer(tensors, compiled, attributes, is_compiled=True), compiles=True),
    )
