"""PyTorch as a peer of embedding_backward, eager and compiled. Imported on a real device only.

One launch queues ``embedding_dense_backward``, which sorts, and its copy into the given output; compiled, what inductor makes of it.
PyTorch counts no wrong indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _make_run(torch: Any) -> Callable[[Any, Any, Any], None]:
    backward = torch.ops.aten.embedding_dense_backward

    def run(dy: Any, indices: Any, dtable: Any) -> None:
        dtable.copy_(backward(dy, indices, dtable.shape[0], -1, False))

    return run


PEERS = make_torch_peers(("dy", "indices", "dtable"), eager=_make_run, compiled=_make_run)
