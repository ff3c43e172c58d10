"""PyTorch as a peer of rmsnorm, eager and compiled. Imported on a real device only.

One launch queues the addition, where there is one, and ``rms_norm``, or where 1 / root is wanted the same from its parts, copied into the
given outputs; compiled, what inductor makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers

_TENSORS = ("x", "residual", "weight", "y", "sum", "rstd")
_EPS = 1e-5


def _make_run(torch: Any) -> Callable[..., None]:
    def run(x: Any, residual: Any, weight: Any, y: Any, total: Any, rstd: Any) -> None:
        if residual is not None:
            x = x + residual
            total.copy_(x)
        if rstd is None:
            y.copy_(torch.nn.functional.rms_norm(x, (x.shape[1],), weight, _EPS))
            return
        wide = x.float()
        found = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + _EPS)
        y.copy_(wide * found * weight)
        rstd.copy_(found[:, 0])

    return run


PEERS = make_torch_peers(_TENSORS, eager=_make_run, compiled=_make_run)
