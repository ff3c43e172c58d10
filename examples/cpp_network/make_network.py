"""Compiles a small network and saves it for main.cpp: ``python examples/cpp_network/make_network.py FOLDER``.

FOLDER/mlp has the network; FOLDER/x.bin and FOLDER/y.bin an input and the output that this program computes for it, as plain fp32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import aicf
from aicf import Tensor, nn

BATCH, INPUTS, HIDDEN, OUTPUTS = 64, 96, 256, 32


def make_program() -> tuple[aicf.train.Program, np.ndarray]:
    """Return a two-layer perceptron with a softmax behind it as a program, and an input."""
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS), nn.Softmax())
    x = np.random.default_rng(0).normal(size=(BATCH, INPUTS)).astype(np.float32)
    return aicf.compile(model, (Tensor(x),), backend="cuda"), x


def main(folder: Path) -> None:
    """Write the network, an input and its output."""
    program, x = make_program()
    folder.mkdir(parents=True, exist_ok=True)
    program.save(folder / "mlp")
    x.tofile(folder / "x.bin")
    program(x).numpy().tofile(folder / "y.bin")
    print("\n".join(program.plan.to_lines()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
