"""PyTorch as a peer of rmsnorm_backward, eager and compiled. Imported on a real device only.

One launch queues the gradients from their parts, copied into the given outputs; compiled, what inductor makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers

_TENSORS = ("dy", "x", "weight", "rstd", "dsum", "dx", "dweight")


def _make_run(torch: Any) -> Callable[..., None]:
    def run(dy: Any, x: Any, weight: Any, rstd: Any, dsum: Any, dx: Any, dweight: Any) -> None:
        scale = rstd[:, None]
        wide, n = dy.float(), x.float() * scale
        g = wide * weight
        found = scale * (g - n * (g * n).mean(dim=1, keepdim=True))
        dx.copy_(found if dsum is None else found + dsum)
        dweight.copy_((wide * n).sum(dim=0))

    return run


PEERS = make_torch_peers(_TENSORS, eager=_make_run, compiled=_make_run)
