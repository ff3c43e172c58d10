"""Measure how fast the emulator is on this host: warp instructions per second, unchecked and with every check on.

    python device/emulator/bench/throughput.py [--size 512] [--tensor-size 1024] [--repeat 5] [--workers 0] [--json FILE] [--page FILE]
    python device/emulator/bench/throughput.py --from profiles/emulator/throughput.json --page profiles/emulator/README.md

Each kernel is run ``repeat`` times; the best time counts, since other work on the host can only make it longer. These are times of the
emulator on this machine's cores. They say nothing about a GPU. What else the machine did is noted with them: its load, and the part of the
wall time that this process was on a core.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from device import open_device
from device.emulated import EmulatorObserver
from device.interface import Device, DeviceArray
from device.observer import Observer

SOURCE = Path(__file__).with_name("throughput.cu")
KERNELS = ("matmul16", "matmul32", "arithmetic", "saxpy")
UNCOALESCED_KERNELS = ("naive_matmul",)  # each thread of a warp reads its own row
UNCOALESCED_SIZE = 128
TENSOR_KERNELS = ("tensor_matmul", "warpgroup_matmul")  # bf16: mma.sync with cp.async and ldmatrix; wgmma with TMA


TITLES = {
    "matmul16": "512³ fp32 matmul, 16x16 tiles",
    "matmul32": "512³ fp32 matmul, 32x32 tiles",
    "arithmetic": "arithmetic, no memory",
    "saxpy": "saxpy",
    "tensor_matmul": "1024³ bf16 matmul, `mma.sync` with `cp.async` and `ldmatrix`",
    "warpgroup_matmul": "1024³ bf16 matmul, `wgmma` with tensor copies",
    "naive_matmul": "128³ fp32 matmul, each thread of a warp reads its own row",
}


@dataclass(frozen=True)
class Conditions:
    """Where and when the measurements were made.

    ``load`` is the system's average of runnable tasks over a minute, before and after; ``busy_share`` the CPU seconds of this process per
    core and second of the best launches, 1 where it had its cores to itself; ``all_checks`` those that the row "all" had.
    """

    processor: str
    cores: int
    engine: str
    repeat: int
    load_before: float
    load_after: float
    busy_share: float
    all_checks: tuple[str, ...]


@dataclass(frozen=True)
class Measurement:
    """One kernel under one setting; rates are in million warp instructions per second over all workers."""

    kernel: str
    checks: str
    size: int
    workers: int
    warp_instructions: int
    best_s: float
    rate_m_per_s: float
    rate_per_worker_m_per_s: float


def find_toolkit() -> Path:
    """Return the folder of the CUDA compiler: its wheel's, or that of the nvcc on the path."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / "cu13" / "bin" / "nvcc").is_file():
            return Path(folder) / "cu13"
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("no nvcc found: pip install nvidia-cuda-nvcc, or put nvcc on the path")
    return Path(nvcc).resolve().parents[1]


def build(folder: Path) -> Path:
    """Compile the kernels to a shared object in ``folder`` and return its path."""
    toolkit = find_toolkit()
    (folder / "libcudart.so").symlink_to(toolkit / "lib" / "libcudart.so.13")  # -cudart shared links with -lcudart
    path = folder / "throughput.so"
    command = [
        str(toolkit / "bin" / "nvcc"),
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-std=c++20",
        "-O3",
        "-lineinfo",
        "-cudart",
        "shared",
        "-cudadevrt",
        "none",
    ]
    command += ["--compress-mode=none", "-gencode", "arch=compute_90a,code=compute_90a", f"-L{folder}", str(SOURCE), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return path


class Bench:
    """The kernels, their arrays of ``size`` x ``size`` floats, and the device they run on.

    Each float is two bf16 values of [0, 1), one of which is its upper half, so that the arrays suit both kinds of kernel.
    """

    def __init__(self, device: Device, observer: Observer, library: Path, size: int) -> None:
        self.device = device
        self.observer = observer
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
        self.size = size
        rng = np.random.default_rng(0)
        halves = [(rng.random((size, 2 * size), np.float32).view(np.uint32) >> 16).astype(np.uint16) for _ in range(3)]
        self.arrays: list[DeviceArray] = [device.asarray(half.view(np.float32)) for half in halves]

    def launch(self, kernel: str) -> None:
        """Run a kernel once, to its end."""
        pointers = [ctypes.c_void_p(array.__cuda_array_interface__["data"][0]) for array in self.arrays]
        getattr(self.library, f"run_{kernel}")(*pointers, ctypes.c_int(self.size))
        self.device.synchronize()

    def count(self, kernel: str) -> int:
        """Return the warp instructions of one launch."""
        self.observer.take_counters()
        with self.observer.observe((), counters=True):
            self.launch(kernel)
        (launch,) = self.observer.take_counters()
        return int(launch.counts["warp_instructions"])

    def best_time(self, kernel: str, checks: tuple[str, ...], repeat: int) -> tuple[float, float]:
        """Return the shortest wall time of ``repeat`` launches, and the CPU time of that launch, in seconds."""
        best, cpu = float("inf"), 0.0
        with self.observer.observe(checks):
            for _ in range(repeat):
                start, cpu_start = time.perf_counter(), time.process_time()
                self.launch(kernel)
                best, cpu = min((best, cpu), (time.perf_counter() - start, time.process_time() - cpu_start))
        reports = self.observer.take_reports()
        if reports:
            raise SystemExit(f"{kernel} has findings, so its time means nothing: {reports[0]}")
        return best, cpu


def find_processor() -> str:
    """Return the processor's name as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unknown processor")


def make_page(conditions: Conditions, results: list[Measurement]) -> str:
    """Return the page that shows the measurements."""
    bare = {each.kernel: each.rate_m_per_s for each in results if each.checks == "none"}
    rows = [
        f"| {TITLES[each.kernel]} | {each.checks} | {each.warp_instructions / 1e6:.2f} | {each.best_s:.4f} | {each.rate_m_per_s:.1f} "
        f"| {each.rate_per_worker_m_per_s:.1f} | {bare[each.kernel] / each.rate_m_per_s:.1f} |"
        for each in results
    ]
    return f"""# The emulated device's own speed

Generated by `device/emulator/bench/throughput.py` from `throughput.json`: {conditions.cores} cores of {conditions.processor}, engine
{conditions.engine}, best of {conditions.repeat} launches. These are times of the emulator on a CPU; they say nothing about a GPU.

How busy the machine was: {conditions.load_before:.1f} runnable tasks before and {conditions.load_after:.1f} after (the system's average of
a minute) for its {conditions.cores} cores; in the launches that count, the emulator's threads were on a core
{100 * conditions.busy_share:.0f} % of the time.

| kernel | checks | M warp instructions | s | M warp instructions/s | per core | times the bare run |
|---|---|--:|--:|--:|--:|--:|
{chr(10).join(rows)}

"All" is {", ".join(conditions.all_checks[:-1])} and {conditions.all_checks[-1]} together. Two public programs,
before and after they were made faster: [programs-speed.md](programs-speed.md).
"""


def measure(size: int, tensor_size: int, repeat: int, num_workers: int) -> tuple[Conditions, list[Measurement]]:
    """Measure every kernel under every setting, and print a line for each."""
    load_before = os.getloadavg()[0]
    device = open_device("emulated")
    observer = device.observer
    assert isinstance(observer, EmulatorObserver)
    observer.set_option("workers", str(num_workers))
    workers = num_workers or len(os.sched_getaffinity(0))
    results = []
    wall_s = cpu_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        groups = ((size, KERNELS), (tensor_size, TENSOR_KERNELS), (UNCOALESCED_SIZE, UNCOALESCED_KERNELS))
        benches = [(Bench(device, observer, library, of), kernels) for of, kernels in groups]
        print(f"{'kernel':<18}{'checks':<8}{'M warp inst':>12}{'s':>10}{'M/s':>9}{'M/s/core':>10}")
        for bench, kernel in ((bench, kernel) for bench, kernels in benches for kernel in kernels):
            instructions = bench.count(kernel)
            for name, checks in (("none", ()), ("racecheck", ("racecheck",)), ("all", Observer.CHECKS)):
                best, cpu = bench.best_time(kernel, checks, repeat)
                wall_s += best
                cpu_s += cpu
                rate = instructions / best / 1e6
                results.append(Measurement(kernel, name, bench.size, workers, instructions, best, rate, rate / workers))
                print(f"{kernel:<18}{name:<8}{instructions / 1e6:>12.2f}{best:>10.4f}{rate:>9.1f}{rate / workers:>10.1f}")
    engine = observer.version.split()[-1]
    busy = cpu_s / (wall_s * workers)
    return Conditions(find_processor(), workers, engine, repeat, load_before, os.getloadavg()[0], busy, Observer.CHECKS), results


def main() -> None:
    """Measure every kernel, print a table, and write the measurements where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the matrices, a multiple of 32 (default 512)")
    parser.add_argument(
        "--tensor-size", type=int, default=1024, help="the same of the tensor-core kernels, a multiple of 128 (default 1024)"
    )
    parser.add_argument("--repeat", type=int, default=5, help="launches to take the best of (default 5)")
    parser.add_argument("--workers", type=int, default=0, help="host threads, 0 = all cores (default)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    parser.add_argument("--page", type=Path, help="also write them as a page of Markdown")
    parser.add_argument("--from", dest="source", type=Path, help="measure nothing: make the page of such a file")
    options = parser.parse_args()
    if options.size <= 0 or options.size % 32 or options.tensor_size <= 0 or options.tensor_size % 128:
        parser.error("--size must be a positive multiple of 32, --tensor-size of 128")
    if options.repeat <= 0 or options.workers < 0:
        parser.error("--repeat must be positive, --workers not negative")
    if options.source:
        kept = json.loads(options.source.read_text())
        page = make_page(Conditions(**kept["conditions"]), [Measurement(**each) for each in kept["measurements"]])
        if options.page:
            options.page.write_text(page, encoding="utf-8")
        else:
            print(page)
        return
    conditions, results = measure(options.size, options.tensor_size, options.repeat, options.workers)
    if options.json:
        kept = {"conditions": asdict(conditions), "measurements": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(kept, indent=2) + "\n")
    if options.page:
        options.page.write_text(make_page(conditions, results), encoding="utf-8")


if __name__ == "__main__":
    main()
