"""A small network on scikit-learn's digits, trained eagerly and as one compiled step: ``python examples/mlp_digits.py``.

Both start from the same weights and see the same batches; on the NumPy backend they end with the same bits. With ``--backend cuda`` the
compiled step trains on frozen kernels, on a GPU or the emulated device, and so does the program that classifies.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader

BATCH, EPOCHS = 64, 30


def make_model() -> tuple[nn.Module, optim.Optimizer]:
    """Return a model and its optimizer, the same each time."""
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, optim.AdamW(model.parameters(), lr=optim.cosine(3e-3, total=EPOCHS * 21, warmup=21))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch."""
    return F.cross_entropy(model(x), y)


def train_eagerly(loader: DataLoader) -> nn.Module:
    """Return a model trained call by call."""
    model, optimizer = make_model()
    for x, y in loader.epochs(EPOCHS):
        optimizer.zero_grad()
        loss(model, Tensor(x), Tensor(y)).backward()
        optimizer.step()
    return model


def train_compiled(loader: DataLoader, backend: str = "numpy") -> nn.Module:
    """Return a model trained by one plan that holds forward, backward and update."""
    model, optimizer = make_model()
    example = tuple(Tensor(array[:BATCH]) for array in loader.arrays)
    step = aicf.compile_step(model, loss, optimizer, example, backend=backend)
    for x, y in loader.epochs(EPOCHS):
        step(x, y)
    return model


def measure_accuracy(model: nn.Module, x: np.ndarray, y: np.ndarray, backend: str = "numpy") -> float:
    """Return the share of images whose class is found by the compiled network."""
    classify = aicf.compile(model, (Tensor(x),), backend=backend)
    return float((classify(x).numpy().argmax(1) == y).mean())


def main() -> None:
    """Train and print what comes out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "cuda"], default="numpy", help="where the compiled step runs")
    backend = parser.parse_args().backend
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
    models = []
    for name, train in (("eager", train_eagerly), ("compiled", lambda loader: train_compiled(loader, backend))):
        where = backend if name == "compiled" else "numpy"
        start = time.perf_counter()
        models.append(train(DataLoader((x, y), batch=BATCH, seed=1)))
        accuracy = measure_accuracy(models[-1], x_test, y_test, where)
        print(f"{name:8} on {where}: test accuracy {accuracy:.4f}  {time.perf_counter() - start:.1f} s")
    if backend == "cuda":
        return  # sums in another order: near, not the same
    same = all(np.array_equal(p.numpy(), q.numpy()) for p, q in zip(*(m.parameters() for m in models), strict=True))
    print(f"the weights are {'the same, bit for bit' if same else 'not the same'}")


if __name__ == "__main__":
    main()
