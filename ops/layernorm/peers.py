"""PyTorch as a peer of layernorm, eager and compiled. Imported on a real device only.

One launch queues the addition, where there is one, and ``native_layer_norm`` with its statistics, copied into the given outputs; compiled,
what inductor makes of the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers

_TENSORS = ("x", "residual", "weight", "bias", "y", "sum", "mean", "rstd")


def _make_run(torch: Any) -> Callable[..., None]:
    def run(x: Any, residual: Any, weight: Any, bias: Any, y: Any, total: Any, mean: Any, rstd: Any) -> None:
        if residual is not None:
            x = x + residual
            total.copy_(x)
        found, found_mean, found_rstd = torch.native_layer_norm(x, (x.shape[1],), weight, bias, 1e-5)
        y.copy_(found)
        if mean is not None:
            mean.copy_(found_mean[:, 0])
            rstd.copy_(found_rstd[:, 0])

    return run


PEERS = make_torch_peers(_TENSORS, eager=_make_run, compiled=_make_run)
