"""JAX's training steps: jit with donated state, and a scan over 64 steps."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from cases import CHECKED_STEPS, RATE, SCANNED, Case, time_step

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def measure(case: Case, seconds: float, few: bool = False) -> dict[str, Any]:
    """Return the contenders' figures by name; both are among the few."""
    del few
    compute = jnp.bfloat16 if case.dtype == "bfloat16" else jnp.float32
    if case.dtype == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")  # fp32 as it is, not TF32

    def find_loss(params: Any, x: Any, y: Any) -> Any:
        h = x.astype(compute)
        for i, (w, b) in enumerate(params):
            h = h @ w.astype(compute).T + b.astype(compute)
            h = jax.nn.relu(h) if i + 1 < len(params) else h
        logs = jax.nn.log_softmax(h.astype(jnp.float32))
        return -jnp.take_along_axis(logs, y[:, None], 1).mean()

    def step(state: Any, x: Any, y: Any) -> Any:
        params, m, v, count = state
        loss, grads = jax.value_and_grad(find_loss)(params, x, y)
        count = count + 1
        m = jax.tree.map(lambda a, g: BETA1 * a + (1 - BETA1) * g, m, grads)
        v = jax.tree.map(lambda a, g: BETA2 * a + (1 - BETA2) * g * g, v, grads)
        first, second = 1 - BETA1**count, 1 - BETA2**count
        params = jax.tree.map(lambda p, a, b: p - RATE * (a / first) / (jnp.sqrt(b / second) + EPS), params, m, v)
        return (params, m, v, count), loss

    def make_state() -> Any:
        params = [(jnp.asarray(w), jnp.asarray(b)) for w, b in case.make_weights()]
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return params, zeros(), zeros(), jnp.float32(0)

    held = [(jnp.asarray(x), jnp.asarray(y.astype("int32"))) for x, y in case.make_batches()]
    return {
        "JAX jit, donated": _measure_jit(jax.jit(step, donate_argnums=0), make_state(), held, seconds),
        f"JAX scan over {SCANNED}": _measure_scan(step, make_state(), held, seconds),
    }


def measure_inference(case: Case, seconds: float) -> dict[str, Any]:
    """Return the contender's figures by name."""
    compute = jnp.bfloat16 if case.dtype == "bfloat16" else jnp.float32
    if case.dtype == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")
    params = [(jnp.asarray(w, compute), jnp.asarray(b, compute)) for w, b in case.make_weights()]
    held = [jnp.asarray(x, compute) for x, _ in case.make_batches()]

    @jax.jit
    def run(params: Any, h: Any) -> Any:
        for i, (w, b) in enumerate(params):
            h = h @ w.T + b
            h = jax.nn.relu(h) if i + 1 < len(params) else h
        return h

    started = time.perf_counter()
    box = [run(params, held[0])]
    norm = float(jnp.linalg.norm(box[0].astype(jnp.float32)))
    first_s = time.perf_counter() - started

    def step(i: int) -> None:
        box[0] = run(params, held[i % len(held)])

    return {"JAX jit": {**time_step(step, lambda: jax.block_until_ready(box), seconds), "first_s": first_s, "norm": norm}}


def _measure_jit(jitted: Any, state: Any, held: Any, seconds: float) -> dict[str, Any]:
    box = [state, None]

    def run(i: int) -> None:
        box[0], box[1] = jitted(box[0], *held[i % len(held)])

    started = time.perf_counter()
    run(0)
    losses = [float(box[1])]
    first_s = time.perf_counter() - started
    for i in range(1, CHECKED_STEPS):
        run(i)
        losses.append(float(box[1]))
    found = time_step(run, lambda: jax.block_until_ready(box), seconds)
    return {**found, "first_s": first_s, "losses": losses}


def _measure_scan(step: Any, state: Any, held: Any, seconds: float) -> dict[str, Any]:
    xs = jnp.stack([held[i % len(held)][0] for i in range(SCANNED)])
    ys = jnp.stack([held[i % len(held)][1] for i in range(SCANNED)])
    scan = jax.jit(lambda s, x, y: jax.lax.scan(lambda c, b: step(c, *b), s, (x, y)), donate_argnums=0)
    box = [state, None]

    def run(i: int) -> None:
        box[0], box[1] = scan(box[0], xs, ys)

    started = time.perf_counter()
    run(0)
    losses = [float(each) for each in box[1][:CHECKED_STEPS]]
    first_s = time.perf_counter() - started
    found = {name: value / SCANNED for name, value in time_step(run, lambda: jax.block_until_ready(box), seconds).items()}
    return {**found, "first_s": first_s, "losses": losses}


def describe() -> dict[str, Any]:
    """Return versions."""
    return {"jax": jax.__version__}
