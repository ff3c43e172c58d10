"""Times the backward pass of a linear layer and its activation on a GPU: through autograd, the launches alone, and PyTorch's own layer.

python scripts/time_backward.py --seed 1 --problems 12 --out profiles/gemm_backward/autograd-h200.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import aicf.ops
from device import open_device
from device.toolchain import find_toolchain
from harness.records.provenance import find_commit

WIDTHS = (768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 8192, 11008)
PEERS = {"relu": torch.relu, "silu": torch.nn.functional.silu, "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh")}


def time_us(call: Callable[[], Any], rounds: int = 15) -> float:
    """Return the median of the GPU's microseconds of a call, each between events behind 256 MB that are written, so that L2 is cold."""
    flushed = torch.empty(64 << 20, device="cuda")
    samples = []
    for _ in range(rounds + 3):
        flushed.normal_()
        torch.cuda._sleep(1_000_000)  # the host gets ahead
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        samples.append(1e3 * start.elapsed_time(end))
    return statistics.median(samples[3:])


def time_problem(m: int, n: int, k: int, act: str) -> dict[str, Any]:
    """Return the times of one layer's backward pass, bf16 with a bias, W as [N, K]."""
    a, w, bias = (torch.randn(*s, device="cuda", dtype=torch.bfloat16).requires_grad_() for s in ((m, k), (n, k), (n,)))
    dy = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    y = aicf.ops.gemm_bias_act(a, w, bias, act=act, b_layout="nk")
    theirs = PEERS[act](torch.nn.functional.linear(a, w, bias))
    autograd, peer = (time_us(lambda out=out: torch.autograd.grad(out, (a, w, bias), dy, retain_graph=True)) for out in (y, theirs))
    with torch.no_grad():
        made, z = aicf.ops.gemm_bias_act(a, w, bias, act=act, b_layout="nk", save_z=True)
        z = made if act == "relu" else z
        backward = aicf.ops.gemm_backward
        dz, _ = backward(dy, z=z, act=act)
        slope = time_us(lambda: backward(dy, z=z, act=act))
        products = time_us(lambda: backward(dz, w=w, x=a, with_dbias=False))
    return {"m": m, "n": n, "k": k, "act": act, "autograd_us": autograd, "dz_dbias_us": slope, "da_db_us": products, "torch_us": peer}


def main() -> None:
    """Draw the layers, time them, print a row for each, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    rows = []
    for index in range(arguments.problems):
        m, (n, k) = int(np.exp(rng.uniform(np.log(256), np.log(16384)))), (int(v) for v in rng.choice(WIDTHS, 2))
        rows.append(row := time_problem(m, n, k, list(PEERS)[index % len(PEERS)]))
        own = row["dz_dbias_us"] + row["da_db_us"]
        print(
            f"{m:6} {n:6} {k:6} {row['act']:10} autograd {row['autograd_us']:8.1f} us, launches {own:8.1f} "
            f"({row['autograd_us'] / own:.3f}), torch {row['torch_us']:8.1f} ({row['torch_us'] / row['autograd_us']:.3f})"
        )
    for name, ratio in (
        ("autograd / launches", [r["autograd_us"] / (r["dz_dbias_us"] + r["da_db_us"]) for r in rows]),
        ("torch / autograd", [r["torch_us"] / r["autograd_us"] for r in rows]),
    ):
        print(f"{name}: geometric mean {statistics.geometric_mean(ratio):.3f}, from {min(ratio):.3f} to {max(ratio):.3f}")
    if arguments.out:
        p = open_device().properties
        facts = {"device": p.name, "driver": p.driver_version, "torch": torch.__version__, "toolchain": find_toolchain().identity}
        record = {"seed": arguments.seed, **facts, "commit": find_commit(Path(__file__).parent).name, "rows": rows}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
