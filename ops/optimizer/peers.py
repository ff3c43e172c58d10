"""PyTorch's fused AdamW as a peer of optimizer. Imported on a real device only.

One launch queues ``torch._fused_adamw_`` (``_fused_adam_`` without decoupling) on the given stream and arrays. PyTorch takes gradients of
the parameter's dtype alone: those of 16 bits are converted by each launch, as a training loop has to, and so is the copy of the parameter
where one is asked for. PyTorch keeps the step as fp32 beside the parameter, which is converted once for each problem, and not timed.
"""

from __future__ import annotations

from typing import Any

from harness.peers.libraries import view_in_torch
from harness.spec import Peer


class _TorchFused:
    """A :class:`harness.spec.Launchable` on PyTorch's fused optimizers."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._steps: dict[int, Any] = {}

    def supports(self, **arguments: Any) -> str:
        """Return why a problem is not timed, else ""."""
        if arguments.get("step") is None:
            return "PyTorch's optimizers are told the step, and count none"
        if arguments.get("factor") is not None:
            return "PyTorch divides gradients by a scale and is told of overflows apart from it"
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue one step on a stream."""
        torch = self._torch
        p, grad, m, v, copy = (view_in_torch(torch, arguments[name]) for name in ("p", "grad", "m", "v", "copy"))
        lr = view_in_torch(torch, arguments["lr"]).reshape(())
        run = torch._fused_adamw_ if arguments["decoupled"] else torch._fused_adam_
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            run(
                [p],
                [grad.float()],
                [m],
                [v],
                [],
                [self._find_step(arguments["step"])],
                lr=lr,
                beta1=arguments["beta1"],
                beta2=arguments["beta2"],
                weight_decay=arguments["weight_decay"],
                eps=arguments["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=None,
            )
            if copy is not None:
                copy.copy_(p)

    def _find_step(self, step: Any) -> Any:
        """Return the step in fp32, converted when its array is first met."""
        address = int(step.__cuda_array_interface__["data"][0])
        if address not in self._steps:
            self._steps[address] = self._torch.as_tensor(step, device="cuda").reshape(()).float()
        return self._steps[address]


# PyTorch makes the factors of a step, 1 - beta2**step among them, in fp32: at step 1 that of 0.999 keeps 14 bits.
PEERS = (Peer("torch_fused", "torch", _TorchFused, max_error=1000.0),)
