"""PyTorch's training steps: eager, the whole step as one CUDA graph, and torch.compile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from cases import CHECKED_STEPS, RATE, Case, time_step


class _Net:
    def __init__(self, case: Case) -> None:
        layers: list[torch.nn.Module] = []
        for weight, bias in case.make_weights():
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
            layers += [layer, torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers[:-1]).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE, fused=True, capturable=True)
        self.amp: Callable[[], Any] = contextlib.nullcontext
        if case.dtype == "bfloat16":
            self.amp = lambda: torch.autocast("cuda", torch.bfloat16)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with self.amp():
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _make_graph(net: _Net, x: torch.Tensor, y: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the whole step as a graph over inputs of its own. The steps that warm up are taken back."""
    static_x, static_y = x.clone(), y.clone()
    before = [p.detach().clone() for p in net.model.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net.step(static_x, static_y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = net.step(static_x, static_y)
    with torch.no_grad():
        for p, old in zip(net.model.parameters(), before, strict=True):
            p.copy_(old)
        for state in net.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def replay(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        static_x.copy_(x)
        static_y.copy_(y)
        graph.replay()
        return loss

    return replay


def _measure_one(step: Callable[..., torch.Tensor], held: list[tuple[torch.Tensor, torch.Tensor]], seconds: float) -> dict[str, Any]:
    started = time.perf_counter()
    losses = [float(step(*held[i % len(held)])) for i in range(1)]
    first_s = time.perf_counter() - started
    losses += [float(step(*held[i % len(held)])) for i in range(1, CHECKED_STEPS)]
    found = time_step(lambda i: step(*held[i % len(held)]), torch.cuda.synchronize, seconds)
    return {**found, "first_s": first_s, "losses": losses}


def measure(case: Case, seconds: float, few: bool = False) -> dict[str, Any]:
    """Return the contenders' figures by name; one that fails says why. With ``few`` only the fastest, the graph, takes part."""
    held = [(torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()) for x, y in case.make_batches()]

    def compile_step(net: _Net) -> Callable[..., torch.Tensor]:
        net.model = torch.compile(net.model)
        return net.step

    makers: dict[str, Callable[[_Net], Callable[..., torch.Tensor]]] = {
        "torch eager": lambda net: net.step,
        "torch whole-step graph": lambda net: _make_graph(net, *held[0]),
        "torch.compile": compile_step,
    }
    if few:
        makers = {"torch whole-step graph": makers["torch whole-step graph"]}
    found: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            found[name] = _measure_one(make(_Net(case)), held, seconds)
        except (RuntimeError, ImportError, ValueError, TypeError) as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    return found


def measure_inference(case: Case, seconds: float) -> dict[str, Any]:
    """Return the contenders' figures by name; one that fails says why."""
    dtype = torch.bfloat16 if case.dtype == "bfloat16" else torch.float32
    held = [torch.from_numpy(x).cuda().to(dtype) for x, _ in case.make_batches()]
    model = _Net(case).model.to(dtype).eval()
    found: dict[str, Any] = {}
    for name, run in {"torch eager": model, "torch.compile max-autotune": torch.compile(model, mode="max-autotune")}.items():
        try:
            with torch.inference_mode():
                started = time.perf_counter()
                norm = float(torch.linalg.norm(run(held[0]).float()))
                first_s = time.perf_counter() - started
                timed = time_step(lambda i, run=run: run(held[i % len(held)]), torch.cuda.synchronize, seconds)  # type: ignore[misc]
            found[name] = {**timed, "first_s": first_s, "norm": norm}
        except (RuntimeError, ImportError, ValueError, TypeError) as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    return found


def describe() -> dict[str, Any]:
    """Return versions."""
    return {"torch": torch.__version__}
