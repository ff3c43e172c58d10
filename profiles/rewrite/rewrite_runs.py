"""The networks, batches and sizes that rewriting is measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.rewrite import Judge, Policy, Run, Together, Widen

Batch = tuple[Tensor, Tensor]
Figures = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    An MLP stack of ``blocks`` times (width, 4 width) on ``rows``; a plain MLP of ``layers`` square layers on as many; the anchor
    (anchor, 4 anchor, 4 anchor, anchor) in bf16 on ``anchor_rows``; a small network of ``units``, whose trajectory is followed for
    ``steps``. ``families`` of the corpus are judged, 0 for all.
    """

    width: int
    blocks: int
    rows: int
    square: int
    layers: int
    anchor: int
    anchor_rows: int
    every: int
    rounds: int
    cycles: int
    units: int
    steps: int
    families: int


FULL = Sizes(768, 4, 1024, 4096, 8, 1024, 4096, every=100, rounds=5, cycles=100, units=128, steps=50, families=0)
TINY = Sizes(8, 2, 8, 8, 2, 8, 8, every=2, rounds=2, cycles=2, units=8, steps=8, families=3)


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy of a model's outputs."""
    return F.cross_entropy(model(x), y)


def make_run(
    layers: list[nn.Module],
    batch: Batch,
    every: int | None = None,
    *,
    amp: str | None = None,
    policy: Policy | None = None,
    judge: Judge | None = None,
) -> Run:
    """Return a run of a network on the device, trained by AdamW with decoupled decay and clipping."""
    model = nn.Sequential(*layers)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, eps=1e-8, weight_decay=0.1)
    step = aicf.compile_step(model, compute_loss, optimizer, batch, clip_norm=1.0, backend="cuda", amp=amp)
    return Run(step, policy, every=every, judge=judge)


def make_stack(sizes: Sizes) -> list[nn.Module]:
    """Return the layers of an MLP stack; those at 0, 4, 8, ... make the hidden units."""
    aicf.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(sizes.blocks):
        layers += [nn.Linear(sizes.width, 4 * sizes.width), nn.GELU(), nn.Linear(4 * sizes.width, sizes.width), nn.Tanh()]
    return layers


def make_widening(sizes: Sizes) -> Together:
    """Return the rule that doubles the hidden units of every MLP of a stack."""
    return Together(tuple(Widen(str(4 * i), 8 * sizes.width) for i in range(sizes.blocks)))


def make_square(sizes: Sizes) -> list[nn.Module]:
    """Return the layers of a plain MLP."""
    aicf.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(sizes.layers):
        layers += [nn.Linear(sizes.square, sizes.square), nn.ReLU()]
    return layers[:-1]


def make_anchor(sizes: Sizes) -> list[nn.Module]:
    """Return the layers of the MLP whose hidden layers are four times as wide as its ends."""
    aicf.manual_seed(0)
    n = sizes.anchor
    return [nn.Linear(n, 4 * n), nn.ReLU(), nn.Linear(4 * n, 4 * n), nn.ReLU(), nn.Linear(4 * n, n)]


def make_small(units: int) -> list[nn.Module]:
    """Return the layers of a small network of ``units`` inputs and hidden units."""
    aicf.manual_seed(0)
    return [nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units), nn.Tanh(), nn.Linear(units, units)]


def make_batch(rows: int, width: int, seed: int = 0) -> Batch:
    """Return a batch in device memory: (rows, width) float32, and (rows,) classes below ``width``."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, width, size=rows)
    return Tensor(x, backend="cuda"), Tensor(y, backend="cuda")
