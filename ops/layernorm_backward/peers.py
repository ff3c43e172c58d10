"""PyTorch as a peer of layernorm_backward, eager and compiled. Imported on a real device only.

One launch queues ``native_layer_norm_backward`` and the addition of dsum, copied into the given outputs; compiled, what inductor makes of
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers

_TENSORS = ("dy", "x", "weight", "mean", "rstd", "dsum", "dx", "dweight", "dbias")


def _make_run(torch: Any) -> Callable[..., None]:
    backward = torch.ops.aten.native_layer_norm_backward

    def run(dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, dsum: Any, dx: Any, dweight: Any, dbias: Any) -> None:
        wanted = [True, True, dbias is not None]
        found = backward(dy, x, (x.shape[1],), mean[:, None], rstd[:, None], weight, weight if wanted[2] else None, wanted)
        dx.copy_(found[0] if dsum is None else found[0] + dsum)
        dweight.copy_(found[1])
        if dbias is not None:
            dbias.copy_(found[2])

    return run


PEERS = make_torch_peers(_TENSORS, eager=_make_run, compiled=_make_run)
