"""Mutants of right kernels: each loses one barrier, wait, fence, arrival or store, or reads one element beside; what finds the fault?

    python -m tests.emulator.mutations.campaign [--kernel NAME ...] [--record profiles/emulator/mutations.md]

A mutant is the PTX of ``corpus.cu`` with one line changed. Every change is held to be a fault unless :data:`BENIGN` gives a reason why it
is none. Found means: an error from the sanitizer, or a result other than the original's, under one of four schedules.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from ctypes import c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.loader import find_emulator_library
from device.settings import read_settings
from device.toolchain import find_toolchain

from ..cuda_runtime import Args, Runtime

SOURCE = Path(__file__).with_name("corpus.cu")
SCHEDULES = (("default", 0), ("reversed", 0), ("greedy", 0), ("random", 7))
N = 256
DELETED = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?(?:(barrier\.sync|bar\.\w+|bar\.warp\.sync|barrier\.cluster\.\w+|membar\.\w+|fence\.[\w:.]+|mbarrier\.arrive[\w:.]*"
    r"|cp\.async\.(?:wait|commit)_\w+|cp\.async\.bulk\.(?:wait|commit)_group)[^;]*);"
)
STORE = re.compile(r"^\s*(?:@!?%p\d+\s+)?(st\.(?:shared|global)\.[\w.]+)\s+\[")
SHIFTED = re.compile(r"^(\s*(?:@!?%p\d+\s+)?(?:ld|st)\.(?:shared|global(?:\.nc)?)\.[fub]32\s+(?:%\w+, )?\[%\w+)(?:\+(-?\d+))?(\].*)$")

# (kernel, change, text that the line holds): why it is no fault.
BENIGN: dict[tuple[str, str, str], str] = {
    ("*", "delete", "fence.mbarrier_init"): "the only observer of the mbarrier's initial state is behind a barrier of the block",
}


@dataclass(frozen=True)
class Mutant:
    kernel: str
    change: str  # "delete", "drop store", "shift"
    line: int
    text: str
    ptx: str

    @property
    def benign(self) -> str:
        for (kernel, change, text), reason in BENIGN.items():
            if kernel in ("*", self.kernel) and change == self.change and text in self.text:
                return reason
        return ""


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    kinds: tuple[str, ...]
    wrong_result: bool

    @property
    def by_sanitizer(self) -> bool:
        return bool(self.kinds)


def compile_corpus() -> str:
    """The PTX of the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.ptx"
        command = [str(find_toolchain().nvcc), "-ptx", "-lineinfo", "-std=c++20", "-O3", "-gencode", "arch=compute_90a,code=compute_90a"]
        subprocess.run([*command, str(SOURCE), "-o", str(path)], check=True, capture_output=True)
        return path.read_text()


def split_kernels(ptx: str) -> dict[str, str]:
    """A module of its own for each kernel."""
    head = ptx[: ptx.index(".visible .entry")]
    head = "\n".join(line for line in head.splitlines() if not line.lstrip().startswith((".file", ".loc")))
    found = {}
    for part in ptx[ptx.index(".visible .entry") :].split(".visible .entry ")[1:]:
        body = part[: part.rindex("}") + 1] if ".section" not in part else part[: part.index(".section")]
        text = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith((".loc", ".file", "//")))
        end = text.index("\n}") + 2
        found[part[: part.index("(")]] = head + ".visible .entry " + text[:end] + "\n"
    return found


def mutants(kernel: str, ptx: str) -> Iterator[Mutant]:
    """Every single change of the kernel."""
    lines = ptx.splitlines()
    for i, line in enumerate(lines):
        changes: list[tuple[str, str]] = []
        if DELETED.match(line):
            changes.append(("delete", ""))
        if STORE.match(line):
            changes.append(("drop store", ""))
        if match := SHIFTED.match(line):
            changes.append(("shift", f"{match[1]}+{int(match[2] or 0) + 4}{match[3]}"))
        for change, replacement in changes:
            yield Mutant(kernel, change, i + 1, line.strip(), "\n".join([*lines[:i], replacement, *lines[i + 1 :]]) + "\n")


class Bench:
    """Runs a module's kernel on fixed inputs."""

    def __init__(self, cuda: Runtime) -> None:
        self.cuda = cuda
        self.values = (np.arange(N, dtype=np.float32) * 7 % 61).astype(np.float32)

    def run(self, kernel: str, ptx: str, schedule: str, seed: int) -> tuple[NDArray[Any] | None, list[dict[str, Any]]]:
        cuda = self.cuda
        options = {"checks": "all", "workers": 1, "schedule": schedule, "seed": seed, "instruction_limit": 400000}
        for name, value in options.items():
            assert cuda.set_option(name, value) == 0, cuda.message()
        cuda.reports()
        library = cuda.load(ptx)
        arrays = [self.values, np.zeros(N, np.float32), np.zeros(64, np.uint32)]
        addresses = [cuda.alloc(a) for a in arrays]
        args = Args(*(c_void_p(a) for a in addresses), c_int(N))
        code = cuda.launch(cuda.kernel(library, kernel), args, grid=(2, 1, 1), block=(128, 1, 1))
        code = code or cuda.code("cudaDeviceSynchronize")
        reports = cuda.reports()
        out = None
        if code:
            cuda.recover()
        else:
            out = np.concatenate([cuda.read(addresses[1], N), cuda.read(addresses[2], 64)])
        for address in addresses:
            cuda.call("cudaFree", address)
        cuda.code("cudaLibraryUnload", library)
        return out, reports

    def judge(self, mutant: Mutant, right: NDArray[Any]) -> Outcome:
        """Run the mutant under one schedule after the other until something shows."""
        kinds: set[str] = set()
        wrong = False
        for schedule, seed in SCHEDULES:
            out, reports = self.run(mutant.kernel, mutant.ptx, schedule, seed)
            kinds |= {str(r["kind"]) for r in reports if r["severity"] == "error"}
            wrong |= out is None or not np.array_equal(out, right)
            if kinds:
                break
        return Outcome(mutant, tuple(sorted(kinds)), wrong)


def run_campaign(cuda: Runtime, chosen: set[str] | None = None, every: int = 1) -> tuple[dict[str, list[str]], list[Outcome]]:
    """Findings on the originals (by kernel), and what became of each mutant."""
    bench = Bench(cuda)
    originals: dict[str, list[str]] = {}
    outcomes = []
    number = 0
    for kernel, ptx in split_kernels(compile_corpus()).items():
        if chosen and kernel not in chosen:
            continue
        right = None
        originals[kernel] = []
        for schedule, seed in SCHEDULES:
            out, reports = bench.run(kernel, ptx, schedule, seed)
            originals[kernel] += [f"{schedule}: {r['kind']}: {r['text']}" for r in reports]
            if out is None or (right is not None and not np.array_equal(out, right)):
                originals[kernel].append(f"{schedule}: another result")
            right = out if right is None else right
        if right is None:
            continue
        for mutant in mutants(kernel, ptx):
            number += 1
            if number % every == 0:
                outcomes.append(bench.judge(mutant, right))
    return originals, outcomes


def format_record(originals: dict[str, list[str]], outcomes: list[Outcome]) -> str:
    """The campaign as Markdown."""
    faults = [o for o in outcomes if not o.mutant.benign]
    found = [o for o in faults if o.by_sanitizer or o.wrong_result]
    alone = [o for o in faults if o.by_sanitizer]
    findings = sum(len(f) for f in originals.values())
    text = "# Mutations\n\nMade by `python -m tests.emulator.mutations.campaign --record profiles/emulator/mutations.md`.\n\n"
    text += f"{len(originals)} kernels, {findings} findings on the originals under {len(SCHEDULES)} schedules. "
    text += f"{len(outcomes)} mutants, {len(faults)} of them faults: {len(found)} found ({len(found) / max(len(faults), 1):.1%}), "
    text += f"{len(alone)} by the sanitizer alone ({len(alone) / max(len(faults), 1):.1%}).\n\n"
    text += "| change | faults | found | by the sanitizer |\n|---|---:|---:|---:|\n"
    for change in ("delete", "drop store", "shift"):
        part = [o for o in faults if o.mutant.change == change]
        hit = sum(o.by_sanitizer or o.wrong_result for o in part)
        text += f"| {change} | {len(part)} | {hit} | {sum(o.by_sanitizer for o in part)} |\n"
    missed = [o for o in faults if o not in found]
    text += "\nA sanitizer error ends the judging of a mutant, so results are compared only as far as it took to find one.\n"
    text += "\n## Missed\n\n" + "".join(f"- `{o.mutant.kernel}`, {o.mutant.change}: `{o.mutant.text}`\n" for o in missed)
    text += "" if missed else "None.\n"
    harmless = [o for o in outcomes if o.mutant.benign]
    text += "\n## No faults\n\n"
    text += "".join(f"- `{o.mutant.kernel}`, {o.mutant.change}: `{o.mutant.text}`: {o.mutant.benign}\n" for o in harmless)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", type=Path, default=None, help="libcudart.so.13 of the emulator")
    parser.add_argument("--kernel", action="append", help="only this kernel")
    parser.add_argument("--record", type=Path, help="write the record here")
    options = parser.parse_args()
    cuda = Runtime(options.library or find_emulator_library(read_settings()))
    originals, outcomes = run_campaign(cuda, set(options.kernel) if options.kernel else None)
    text = format_record(originals, outcomes)
    if options.record:
        options.record.write_text(text)
    sys.stdout.write(text)
    for kernel, findings in originals.items():
        for finding in findings:
            sys.stdout.write(f"ORIGINAL {kernel}: {finding}\n")
    faults = [o for o in outcomes if not o.mutant.benign]
    found = sum(o.by_sanitizer or o.wrong_result for o in faults)
    return 0 if found >= 0.95 * len(faults) and not any(originals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
