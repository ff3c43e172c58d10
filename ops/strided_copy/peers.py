"""PyTorch as a peer of strided_copy, eager and compiled: a copy of each view into the output's. Imported on a real device only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer

from .population import MAX_PIECES

Copy = Callable[[Sequence[Any], Sequence[Any]], None]


def _copy(xs: Sequence[Any], ys: Sequence[Any]) -> None:
    for x, y in zip(xs, ys, strict=True):
        y.copy_(x)


class _TorchCopies:
    """A :class:`harness.spec.Launchable`: a copy per piece, which the compiler may make one launch of."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        self._torch = torch
        self._run: Copy = compile_for_shapes(torch, _copy) if is_compiled else _copy

    def supports(self, **arguments: Any) -> str:
        """Return "": every problem is served."""
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the copies on a stream."""
        there = [i for i in range(MAX_PIECES) if arguments[f"x{i}"] is not None]
        xs, ys = ([view_in_torch(self._torch, arguments[f"{stem}{i}"]) for i in there] for stem in "xy")
        with self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream)):
            self._run(xs, ys)


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchCopies(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchCopies(is_compiled=True), compiles=True),
)
