"""What the framework costs the host, and what a plan costs to make: ``python profiles/host/measure.py``.

Eager calls and replays beside the bare launch and PyTorch's, the way from a model to the end of its first step, and the planner. On the
emulated device, which runs kernels on the CPU, launches of eager calls are left out, first steps have the kernels' time in them, and
replays are not timed. Times there are of the CPU, so that others on the machine do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "profiles" / "mlp"), str(ROOT)]

from cases import CASES, TINY, Case  # noqa: E402
from own import _make_model  # noqa: E402

import aicf  # noqa: E402
from aicf import Tensor, nn, optim  # noqa: E402
from aicf import functional as F  # noqa: E402
from aicf.backends import find_backend  # noqa: E402
from aicf.backends.frozen import open_calls  # noqa: E402
from aicf.ir import Graph, Rewriter, Value  # noqa: E402
from aicf.kernels.library import KernelLibrary  # noqa: E402
from aicf.ops.extension import load_extension  # noqa: E402
from aicf.opset import Type, find_op  # noqa: E402
from aicf.plan import make_plan  # noqa: E402
from device import open_device  # noqa: E402

# What is queued before the host waits for the device: less than a queue holds.
QUEUED = 10
LIMIT_S = 120.0
NUM_BUFFERS = 2000
Calls = Mapping[str, Callable[[], Any]]


def choose_clock(cpu: Callable[[], float]) -> Callable[[], float]:
    """Return the clock on a GPU, and where the device is emulated that of the CPU time given."""
    return cpu if open_device().is_emulated else time.perf_counter


def time_calls(calls: Calls, wait: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Return the median host time of each call in microseconds; calls take turns, so that all meet the same circumstances.

    Where nothing runs beside the host it is the CPU's time, which says the same on a machine that others use.
    """
    clock = choose_clock(time.thread_time)
    for call in calls.values():
        call()
    wait()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = clock()
            for _ in range(QUEUED):
                call()
            samples[name].append((clock() - started) / QUEUED)
            wait()
    return {name: 1e6 * statistics.median(each) for name, each in samples.items()}


def import_torch() -> Any:
    """Return PyTorch with a GPU, None where there is none."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def measure_eager(rounds: int) -> dict[str, float]:
    """Return host times of a linear layer: its bare launch, the same by op_call, with an autograd node, and torch's addmm."""
    device, backend, rng = open_device(), find_backend("cuda"), np.random.default_rng(0)
    rows, inner, columns = (4, 16, 16) if device.is_emulated else (128, 784, 256)
    shapes = {"x": (rows, inner), "w": (columns, inner), "bias": (columns,)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    x, w, bias = (backend.from_host(a) for a in arrays.values())
    attrs = find_op("gemm_bias_act").fill({"b_layout": "nk"})
    if device.is_emulated:  # it would run the kernels here, a thousand times as long as a call takes
        KernelLibrary.launch = lambda self, params, workspace, stream: None  # type: ignore[method-assign]
        load_extension().Launcher = lambda launch, params, pointers: lambda addresses, workspace: True  # type: ignore[attr-defined]
    call = open_calls(deterministic=True).find("gemm_bias_act", [backend.type_of(a) for a in (x, w, bias)], attrs)
    (out,) = backend.op_call("gemm_bias_act", (x, w, bias), attrs)
    params = call.make_params([a.address for a in (x, w, bias)], [out.address])
    library, wanted = call.handle.load(), call.handle.workspace_bytes
    workspace = device.allocate(wanted) if wanted else None
    address = 0 if workspace is None else workspace.address
    tensor, weight, shift = Tensor.wrap(x, backend), nn.Parameter(arrays["w"], backend="cuda"), nn.Parameter(arrays["bias"], backend="cuda")
    calls: dict[str, Callable[[], Any]] = {
        "bare launch": lambda: library.launch(params, address, 0),
        "op_call": lambda: backend.op_call("gemm_bias_act", (x, w, bias), attrs),
        "F.linear with its node": lambda: F.linear(tensor, weight, shift),
    }
    torch = import_torch()
    if torch is not None:
        peers = [torch.from_numpy(a).cuda() for a in arrays.values()]
        learned = [a.clone().requires_grad_() for a in peers]
        turned, turned_learned = peers[1].t(), learned[1].t()
        calls["torch addmm"] = lambda: torch.addmm(peers[2], peers[0], turned)
        calls["torch addmm with its node"] = lambda: torch.addmm(learned[2], peers[0], turned_learned)
    found = time_calls(calls, device.synchronize, rounds)
    bare = found["bare launch"]
    return found | {"op_call over the launch": found["op_call"] - bare, "node over the launch": found["F.linear with its node"] - bare}


def make_step(case: Case) -> tuple[aicf.train.Step, list[tuple[Tensor, ...]]]:
    """Return a compiled step and batches on the device."""
    model = _make_model(case)
    batches = [tuple(Tensor(a, backend="cuda") for a in batch) for batch in case.make_batches()]
    amp = None if case.dtype == "float32" else case.dtype
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, batches[0], backend="cuda", amp=amp)
    return step, batches


def choose_case() -> Case:
    """Return the small perceptron, or a tiny one for the emulated device."""
    return next(iter((TINY if open_device().is_emulated else CASES).values()))


def measure_replay(rounds: int) -> dict[str, float]:
    """Return host times of a replayed step, and of torch's replay of a graph with as many dependent launches; and the arena's figures."""
    device = open_device()
    step, batches = make_step(choose_case())
    bound = step.plan.lower_bound_bytes
    arena = {"launches": float(len(step.plan.steps)), "arena / lower bound": step.plan.sizes["arena"] / bound if bound else 1.0}
    if device.is_emulated:
        return arena
    for _ in range(2):
        step(*batches[0])
    executor: Any = step.executor
    stream, arrays = executor._streams[0], [t.data for t in batches[0]]
    calls: dict[str, Callable[[], Any]] = {
        "cudaGraphLaunch of the step": lambda: executor.graph.launch(stream),
        "executor.run": executor.run,
        "inputs brought in": lambda: executor.put(arrays),
        "step(x, y), inputs on the device": lambda: step(*batches[0]),
    }
    torch = import_torch()
    if torch is not None:
        held = torch.zeros(1024, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in step.plan.steps:
                held += 1.0
        calls["torch CUDAGraph.replay, as many launches"] = graph.replay
    return time_calls(calls, device.synchronize, rounds) | arena


def measure_first_step(folder: Path) -> dict[str, float]:
    """Return seconds from a model to the end of its first step, with the device open; the step is saved for ``measure_load``."""
    device = open_device()
    find_backend("cuda").from_host(np.zeros(1, np.float32))
    device.synchronize()
    case, clock = choose_case(), choose_clock(time.process_time)
    started = clock()
    step, batches = make_step(case)
    compiled = clock()
    step(*batches[0]).item()
    ended = clock()
    step.save(folder)
    return {"compile_step": compiled - started, "compile_step and first step": ended - started}


def measure_load(folder: Path) -> dict[str, float]:
    """Return seconds from a saved plan to the end of its first step, with the device open."""
    device = open_device()
    batch = [find_backend("cuda").from_host(a) for a in choose_case().make_batches()[0]]
    device.synchronize()
    clock = choose_clock(time.process_time)
    started = clock()
    step = aicf.load(folder)
    loaded = clock()
    step(*batch).item()
    return {"load": loaded - started, "load and first step": clock() - started}


def make_graph(count: int, seed: int) -> Graph:
    """Return a graph of ``count`` launches on values of 12 sizes, of which most are read soon after they are made and some much later."""
    rng, sizes = random.Random(seed), [2**i * 3 for i in range(4, 16)]
    made = Rewriter(Graph("planned", (), (), (), ()))
    inputs = tuple((f"x{n}", Value(made.make_id(), Type("float32", (n,)))) for n in sizes)
    made.graph = Graph("planned", inputs, (), (), ())
    known = {value.type: [value] for _, value in inputs}
    for _ in range(count):
        values = known[rng.choice(list(known))]
        last = values[-1]
        other = values[max(0, len(values) - 1 - int(rng.expovariate(0.2)))]
        values.append(made.add(last, other) if other is not last else made.neg(last))
    return made.finish([values[-1] for values in known.values()])


def measure_planning(repeats: int) -> dict[str, float]:
    """Return the median time of planning a graph of 2000 values, in seconds of the CPU, and the arena over its lower bound at worst."""
    seconds, ratios = [], []
    for seed in range(repeats):
        graph = make_graph(NUM_BUFFERS, seed)
        started = time.process_time()
        plan = make_plan(graph, "numpy")
        seconds.append(time.process_time() - started)
        ratios.append(plan.sizes["arena"] / plan.lower_bound_bytes)
    return {"planning of 2000 buffers": statistics.median(seconds), "arena / lower bound, worst": max(ratios)}


def run_apart(part: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Return what a part finds in a process of its own; ``error`` says what kept it."""
    path = folder / f"{part}.json"
    words = [
        sys.executable,
        str(HERE / "measure.py"),
        "--part",
        part,
        "--folder",
        str(folder / "plan"),
        "--json",
        str(path),
        "--rounds",
        str(rounds),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # compiled once, as for users
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT_S:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# Row: part, figure, its unit, the peer's figure, aim, the least to resolve. Aims with an x are of the peer's figure.
ROWS = (
    ("eager", "op_call over the launch", "us", "torch addmm", "3", "5"),
    ("eager", "node over the launch", "us", "torch addmm with its node", "6", "9"),
    ("replay", "cudaGraphLaunch of the step", "us", "torch CUDAGraph.replay, as many launches", "1.0 x", "1.1 x"),
    ("replay", "executor.run", "us", "torch CUDAGraph.replay, as many launches", "1.0 x", "1.1 x"),
    ("first", "compile_step and first step", "s", "", "0.5", "1.5"),
    ("load", "load and first step", "s", "", "0.05", "0.2"),
    ("replay", "arena / lower bound", "", "", "1.01", "1.05"),
    ("planning", "arena / lower bound, worst", "", "", "1.01", "1.05"),
    ("planning", "planning of 2000 buffers", "s", "", "0.1", "0.3"),
)
UNTOLD = "not told by an emulated device"


def write_page(found: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Return the page: the rows that have an aim, then all figures."""
    lines = ["# What the host does", "", "; ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += [f"Made by `python profiles/host/measure.py`. Medians; {QUEUED} calls are queued before the host waits.", ""]
    lines += ["| figure | found | peer | aim | least |", "|---|---|---|---|---|"]
    for part, name, unit, peer, aim, least in ROWS:
        value = found[part].get(name)
        told = found[part].get("error", UNTOLD) if value is None else f"{value:.3g} {unit}".strip()
        other = found[part].get(peer)
        beside = f"{other:.3g} {unit} ({peer})" if other is not None else UNTOLD if peer else ""
        if facts["emulated"] and value is not None and (part == "eager" or (unit == "s" and part != "planning")):
            told += ", launches left out" if part == "eager" else ", kernels run on the CPU"
        lines.append(f"| {name} ({part}) | {told} | {beside} | {aim} | {least} |")
    lines.append("")
    for part, figures in found.items():
        lines += [f"{part}: " + "; ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{n}: {v}" for n, v in figures.items()), ""]
    return "\n".join(lines)


def measure_part(part: str, folder: Path, rounds: int) -> dict[str, float]:
    """Return a part's figures."""
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "eager": lambda: measure_eager(rounds),
        "replay": lambda: measure_replay(rounds),
        "first": lambda: measure_first_step(folder),
        "load": lambda: measure_load(folder),
        "planning": lambda: measure_planning(3),
    }
    return parts[part]()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="samples of each host time")
    parser.add_argument("--page", type=Path, help="where the page is written; beside it, JSON with everything")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        args.json.write_text(json.dumps(measure_part(args.part, args.folder, args.rounds)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("first", "load"):  # kernels and bytecode are in their caches from here on
            run_apart(part, folder, args.rounds)
        found = {part: run_apart(part, folder, args.rounds) for part in ("first", "load", "eager", "replay", "planning")}
    properties, commit = open_device().properties, "unknown"
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    commit = done.stdout.strip() or commit
    facts = {"on": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": commit, "device": properties.name, "driver": properties.driver_version}
    facts["emulated"] = open_device().is_emulated
    page = write_page(found, facts)
    if args.page is not None:
        args.page.write_text(page + "\n")
        args.page.with_suffix(".json").write_text(json.dumps({"facts": facts, "found": found}, indent=1) + "\n")
    print(page)


if __name__ == "__main__":
    main()
