"""PyTorch as a peer of softmax_backward, eager and compiled. Imported on a real device only.

One launch queues ATen's gradient of softmax or log-softmax, and a kernel for the scale where there is one, into the given output;
compiled, what inductor makes of the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.peers.torch_peers import make_torch_peers


def _make_run(torch: Any) -> Callable[..., None]:
    def run(dy: Any, y: Any, scale: Any, dx: Any, *, log: bool) -> None:
        function = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
        found = function(dy, y, 1, y.dtype)
        dx.copy_(found if scale is None else found * scale.to(found.dtype))

    return run


PEERS = make_torch_peers(("dy", "y", "scale", "dx"), eager=_make_run, compiled=_make_run, attributes=("log",))
