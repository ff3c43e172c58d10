"""PyTorch as a peer of softmax, eager and compiled. Imported on a real device only.

One launch queues, on the given stream and into the given output: ``torch_eager`` ATen's softmax kernel, ``torch_compile`` what inductor
makes of softmax and a copy into the output, for each shape anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _make_aten(torch: Any) -> Callable[[Any, Any], None]:
    def run(x: Any, y: Any) -> None:
        torch.ops.aten._softmax.out(x, 1, False, out=y)

    return run


def _make_copy(torch: Any) -> Callable[[Any, Any], None]:
    def run(x: Any, y: Any) -> None:
        y.copy_(torch.softmax(x, dim=1))

    return run


PEERS = make_torch_peers(("x", "y"), eager=_make_aten, compiled=_make_copy)
