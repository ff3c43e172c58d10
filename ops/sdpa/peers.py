"""PyTorch's scaled_dot_product_attention as a peer of sdpa, whichever backend it chooses, copied into the output. On a real device only."""

from __future__ import annotations

from typing import Any

from harness.peers.libraries import view_in_torch
from harness.spec import Peer


class _TorchSdpa:
    """A :class:`harness.spec.Launchable` on PyTorch."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def supports(self, **arguments: Any) -> str:
        """Return "" for calls without log-sums: PyTorch's function does not return them."""
        return "" if arguments["lse"] is None else "PyTorch's scaled_dot_product_attention does not return the log-sums"

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue attention on a stream."""
        torch = self._torch
        q, k, v, o = (view_in_torch(torch, arguments[name]) for name in "qkvo")
        attend = torch.nn.functional.scaled_dot_product_attention
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            o.copy_(attend(q, k, v, is_causal=arguments["causal"], scale=arguments["scale"]))


PEERS = (Peer("torch_sdpa", "torch", _TorchSdpa),)
