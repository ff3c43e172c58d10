"""PyTorch as a peer of softmax, eager and compiled. Imported on a real device only.

One launch queues, on the given stream and into the given output: ``torch_eager`` ATen's softmax kernel, with kernels for scale and mask
before it where there are any, ``torch_compile`` what inductor makes of the same and a copy into the output, for each shape anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _prepare(torch: Any, x: Any, scale: Any, keep: Any, queries: Any) -> Any:
    """Return x scaled and masked, itself where it is neither."""
    if scale is not None:
        x = x * scale.to(x.dtype)
    if queries is not None:
        rows, columns = x.shape
        numbers = torch.arange(rows, device=x.device) % queries
        keep = torch.arange(columns, device=x.device) <= numbers[:, None]
    return x if keep is None else x.masked_fill(~keep, float("-inf"))


def _make_eager(torch: Any) -> Callable[..., None]:
    def run(x: Any, scale: Any, keep: Any, queries: Any, y: Any, *, log: bool) -> None:
        function = torch.ops.aten._log_softmax if log else torch.ops.aten._softmax
        function.out(_prepare(torch, x, scale, keep, queries), 1, False, out=y)

    return run


def _make_copy(torch: Any) -> Callable[..., None]:
    def run(x: Any, scale: Any, keep: Any, queries: Any, y: Any, *, log: bool) -> None:
        function = torch.log_softmax if log else torch.softmax
        y.copy_(function(_prepare(torch, x, scale, keep, queries), dim=1))

    return run


PEERS = make_torch_peers(("x", "scale", "keep", "queries", "y"), eager=_make_eager, compiled=_make_copy, attributes=("log",))
