"""PyTorch as a peer of embedding, eager and compiled. Imported on a real device only.

One launch queues ``index_select`` into the given output; compiled, what inductor makes of it. PyTorch counts no wrong indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _make_select(torch: Any) -> Callable[[Any, Any, Any], None]:
    def run(table: Any, indices: Any, y: Any) -> None:
        torch.index_select(table, 0, indices, out=y)

    return run


def _make_copy(torch: Any) -> Callable[[Any, Any, Any], None]:
    def run(table: Any, indices: Any, y: Any) -> None:
        y.copy_(table[indices])

    return run


PEERS = make_torch_peers(("table", "indices", "y"), eager=_make_select, compiled=_make_copy)
