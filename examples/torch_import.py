"""A network of PyTorch's, trained there and here: ``python examples/torch_import.py``.

PyTorch trains a classifier of scikit-learn's digits for some epochs and exports it with ``torch.export``. The program becomes a module of
this package with the same weights, is compiled as a training step, and goes on: its loss is printed beside that of PyTorch going on with
the same batches. With ``--backend cuda`` the step runs on frozen kernels, on a GPU or the emulated device.
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import aicf
from aicf import Tensor, optim
from aicf import functional as F
from aicf.data import DataLoader

BATCH, EPOCHS = 64, 3
Arrays = tuple[np.ndarray, np.ndarray]


def make_model() -> torch.nn.Module:
    """Return a small classifier."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def train_there(model: torch.nn.Module, data: Arrays, seed: int) -> list[float]:
    """Train in PyTorch; returns the loss of each batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    losses = []
    for x, y in DataLoader(data, batch=BATCH, seed=seed).epochs(EPOCHS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(np.array(x))), torch.from_numpy(np.array(y)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_here(model: aicf.nn.Module, data: Arrays, seed: int, backend: str) -> list[float]:
    """Train by one compiled step; returns the loss of each batch."""
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    example = tuple(Tensor(array[:BATCH]) for array in data)
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, example, backend=backend)
    return [step(x, y).item() for x, y in DataLoader(data, batch=BATCH, seed=seed).epochs(EPOCHS)]


def main() -> None:
    """Train in PyTorch, import, go on in both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "cuda"], default="numpy", help="where the compiled step runs")
    backend = parser.parse_args().backend
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
    model = make_model()
    train_there(model, (x, y), seed=1)
    exported = torch.export.export(copy.deepcopy(model), (torch.zeros(BATCH, 64),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    network = aicf.frontends.torch(exported)
    print(network)
    there, here = train_there(model, (x, y), seed=2), train_here(network, (x, y), 2, backend)
    print(f"loss of the last batch: {there[-1]:.6f} in PyTorch, {here[-1]:.6f} compiled for {backend}")
    print(f"farthest apart: {max(abs(a - b) / abs(a) for a, b in zip(there, here, strict=True)):.1e} of the loss")
    classify = aicf.compile(network, (Tensor(x_test),), backend=backend)
    print(f"test accuracy: {(classify(x_test).numpy().argmax(1) == y_test).mean():.4f}")


if __name__ == "__main__":
    main()
