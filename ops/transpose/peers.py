"""PyTorch as a peer of transpose, eager and compiled: a copy of the transposed view into the output. Imported on a real device only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _make_copy(torch: Any) -> Callable[[Any, Any], None]:
    def run(x: Any, y: Any) -> None:
        y.copy_(x.t())

    return run


PEERS = make_torch_peers(("x", "y"), eager=_make_copy, compiled=_make_copy)
