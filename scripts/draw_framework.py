"""Draw the pictures of docs/framework.md: ``python scripts/draw_framework.py``. A test says when they are no longer what the code makes."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.ir import draw_graph

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"


def draw(folder: Path) -> None:
    """Write ``recorded.svg``, ``compiled.svg`` and ``memory.svg`` of a training step."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    batch = Tensor(np.zeros((32, 64), np.float32)), Tensor(np.zeros(32, np.int64))
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, batch, backend="numpy")
    assert step.recorded is not None
    assert step.graph is not None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recorded.svg").write_text(draw_graph(step.recorded))
    (folder / "compiled.svg").write_text(draw_graph(step.graph))
    step.plan.draw(folder / "memory.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=PICTURES, metavar="FOLDER", help="where the pictures go")
    draw(parser.parse_args().to)
