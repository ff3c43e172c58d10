"""Compare the emulated device's counters with Nsight Compute's, over the launches of ``tests/emulator/counters/corpus.cu``.

    python tests/emulator/counters/compare_counters.py emulate                 # counts of the emulated device -> emulated.json
    python tests/emulator/counters/compare_counters.py profile --out FOLDER    # with a GPU and ncu: ncu's counts -> FOLDER/ncu.json
    python tests/emulator/counters/compare_counters.py report FOLDER/ncu.json  # the comparison -> profiles/emulator/counters-h200.md
    python tests/emulator/counters/compare_counters.py report                  # the same of the committed counts, h200.json

``profile`` needs nothing of the project but this file and the corpus, so that it runs on any machine with nvcc and ncu.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "tests" / "emulator" / "counters" / "corpus.cu"
EMULATED = SOURCE.with_name("emulated.json")
MEASURED = SOURCE.with_name("h200.json")
PAGE = ROOT / "profiles" / "emulator" / "counters-h200.md"

GPU = ["-gencode", "arch=compute_90a,code=sm_90a"]
# What is compared: a sum of Nsight Compute's metrics (all .sum) against a sum of the emulator's counters; a minus sign subtracts.
COMPARED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "global load requests": (("l1tex__t_requests_pipe_lsu_mem_global_op_ld",), ("global_loads",)),
    "global load sectors": (
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld",),
        ("global_load_sectors", "-async_bypass_sectors", "async_bypass_lookups"),
    ),
    "global store requests": (("l1tex__t_requests_pipe_lsu_mem_global_op_st",), ("global_stores",)),
    "global store sectors": (("l1tex__t_sectors_pipe_lsu_mem_global_op_st",), ("global_store_sectors",)),
    "global atomic sectors": (
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_atom", "l1tex__t_sectors_pipe_lsu_mem_global_op_red"),
        ("global_atomic_sectors",),
    ),
    "local load sectors": (("l1tex__t_sectors_pipe_lsu_mem_local_op_ld",), ("local_load_sectors",)),
    "local store sectors": (("l1tex__t_sectors_pipe_lsu_mem_local_op_st",), ("local_store_sectors",)),
    "shared load wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",), ("shared_load_wavefronts",)),
    "shared load conflicts": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",), ("shared_load_conflicts",)),
    "shared store wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",), ("shared_store_wavefronts",)),
    "shared store conflicts": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",), ("shared_store_conflicts",)),
    "shared atomic wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom",), ("shared_atomic_wavefronts",)),
    "shared atomic conflicts": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom",), ("shared_atomic_conflicts",)),
    "matrix loads": (("smsp__inst_executed_op_ldsm",), ("matrix_loads",)),
    "warp instructions": (("smsp__inst_executed",), ("warp_instructions",)),
    "thread instructions": (("smsp__thread_inst_executed",), ("active_threads",)),
}
# Of machine code, not of PTX: shown, and not expected to agree.
INFORMATIVE = ("warp instructions", "thread instructions")
COUNTERS = frozenset(name.removeprefix("-") for _, names in COMPARED.values() for name in names)
METRICS = tuple(dict.fromkeys(metric for metrics, _ in COMPARED.values() for metric in metrics))


@dataclass(frozen=True)
class Row:
    """One figure of one launch on both sides."""

    case: str
    figure: str
    emulated: int
    measured: int


def run(command: Sequence[str | Path], **options: object) -> str:
    """Run a command and return what it prints; ends with its error output when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return str(done.stdout)


def find_toolchain() -> Any:
    """Return the project's compilers. The project is imported here: ``profile`` runs where it is not."""
    sys.path.insert(0, str(ROOT))
    from device import toolchain

    return toolchain.find_toolchain()


def open_emulated() -> Any:
    """Return the emulated device."""
    sys.path.insert(0, str(ROOT))
    from device import open_device

    return open_device("emulated")


def build_library(folder: Path, flags: Sequence[str]) -> Path:
    """Compile the corpus to a shared object in ``folder``."""
    toolchain = find_toolchain()
    (folder / "libcudart.so").symlink_to(toolchain.cudart_library)
    path = folder / "corpus.so"
    options = [
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
        "--compress-mode=none",
    ]
    run([toolchain.nvcc, *options, *flags, f"-L{folder}", SOURCE, "-o", path])
    return path


def load_corpus(path: Path) -> tuple[ctypes.CDLL, list[str]]:
    """Open the compiled corpus; returns it and the names of its launches in order."""
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    library.case_names.restype = ctypes.c_char_p
    return library, library.case_names().decode().split()


def count_emulated(path: Path) -> dict[str, dict[str, int]]:
    """Run the corpus on the emulated device; returns by launch the counters that are compared and not zero."""
    device = open_emulated()
    observer = device.observer
    assert observer is not None
    library, names = load_corpus(path)
    observer.take_counters()
    with observer.observe((), counters=True):
        code = library.run_corpus()
        device.synchronize()
    if code:
        sys.exit(f"the corpus failed on the emulated device: cudaError_t {code}")
    launches = observer.take_counters()
    assert len(launches) == len(names)
    return {name: {k: v for k, v in launch.counts.items() if v and k in COUNTERS} for name, launch in zip(names, launches, strict=True)}


def write_json(path: Path, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Write counts, one launch a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(values, sort_keys=True)}" for name, values in counts.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def profile(folder: Path) -> None:
    """Compile the corpus for the GPU and count its launches with Nsight Compute."""
    folder.mkdir(parents=True, exist_ok=True)
    ncu = shutil.which("ncu") or sys.exit("ncu is not on the PATH")
    nvcc = shutil.which("nvcc") or sys.exit("nvcc is not on the PATH")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "corpus"
        run([nvcc, "-std=c++20", "-O3", "-lineinfo", *GPU, "-DAICF_CORPUS_MAIN", SOURCE, "-o", program])
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the corpus failed on the GPU: cudaError_t {done.returncode}")
        names = done.stderr.split()
        known = set(re.findall(r"^(\w+__\w+)", run([ncu, "--query-metrics", "--chip", "gh100"]), re.MULTILINE))
        (folder / "metrics.txt").write_text("\n".join(sorted(n for n in known if "shared" in n or "lsu_mem" in n or "inst_executed" in n)))
        wanted = [f"{m}.sum" for m in METRICS if m in known]
        absent = ", ".join(m for m in METRICS if m not in known) or "none"
        print(f"{len(names)} launches, {len(wanted)} metrics; not known to this ncu: {absent}")
        options = ["--clock-control", "none", "--cache-control", "none", "--csv", "--print-units", "base", "--metrics", ",".join(wanted)]
        text = run([ncu, *options, program])
    (folder / "ncu.csv").write_text(text)
    counts = read_ncu(text, names)
    write_json(folder / "ncu.json", counts)
    print(f"{len(counts)} launches counted -> {folder / 'ncu.json'}")


def read_ncu(text: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return ncu's metrics by launch, from its CSV output (which follows what the program and ncu print)."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        sys.exit(f"no table in ncu's output:\n{text[-3000:]}")
    counts: dict[str, dict[str, int]] = {}
    for row in csv.DictReader(lines[start:]):
        if not (row.get("ID") or "").isdigit():
            continue
        value = float(row["Metric Value"].replace(",", ""))
        counts.setdefault(names[int(row["ID"])], {})[row["Metric Name"].removesuffix(".sum")] = round(value)
    return counts


def expect(counts: Mapping[str, int], names: Sequence[str]) -> int:
    """Return the sum of counters; a name with a minus sign is subtracted."""
    return sum(-counts.get(name[1:], 0) if name.startswith("-") else counts.get(name, 0) for name in names)


def compare(emulated: Mapping[str, Mapping[str, int]], measured: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """Return every figure of every launch that was measured."""
    rows = []
    for case, found in measured.items():
        for figure, (metrics, names) in COMPARED.items():
            rows.append(Row(case, figure, expect(emulated[case], names), sum(found.get(metric, 0) for metric in metrics)))
    return rows


_SASS_FUNCTION = re.compile(r"Function : (\S+)")
_SASS_ACCESS = re.compile(r"\b(LDS|STS|LDG|STG)\b((?:\.\w+)*)")
_PTX_ACCESS = re.compile(r"\b(ld|st)(?:\.volatile|\.relaxed|\.weak)?\.(shared|global)((?:\.\w+)*)")


def find_widths(library: Path) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """Return, by kernel, how many loads and stores of each width its PTX has and its SASS has."""
    cuobjdump = find_toolchain().cuobjdump
    if cuobjdump is None:
        sys.exit("cuobjdump is not installed: pip install nvidia-cuda-cuobjdump")
    widths: dict[str, tuple[Counter[str], Counter[str]]] = {}
    kernel = ""
    for line in run([cuobjdump, "--dump-ptx", library]).splitlines():
        if entry := re.search(r"\.entry (\w+)", line):
            kernel = entry[1]
            widths[kernel] = (Counter(), Counter())
        elif kernel and (access := _PTX_ACCESS.search(line)):
            words = access[3].split(".")
            bits = int("".join(c for c in words[-1] if c.isdigit())) * next((int(w[1]) for w in words if re.fullmatch(r"v\d", w)), 1)
            widths[kernel][0][f"{access[1]}.{access[2]}.{max(bits, 32)}"] += 1
    for line in run([cuobjdump, "--dump-sass", library]).splitlines():
        if function := _SASS_FUNCTION.search(line):
            kernel = function[1]
        elif (access := _SASS_ACCESS.search(line)) and kernel in widths:
            bits = next((int(word) for word in access[2].split(".") if word in ("64", "128")), 32)
            names = {"LDS": "ld.shared", "STS": "st.shared", "LDG": "ld.global", "STG": "st.global"}
            widths[kernel][1][f"{names[access[1]]}.{bits}"] += 1
    return widths


def trim(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the metrics that are compared and not zero."""
    return {case: {name: value for name, value in found.items() if value and name in METRICS} for case, found in counts.items()}


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    emulate = commands.add_parser("emulate", help="count on the emulated device")
    emulate.add_argument("--out", type=Path, default=EMULATED)
    measure = commands.add_parser("profile", help="count on a GPU with Nsight Compute")
    measure.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    write = commands.add_parser("report", help="compare, and write the page")
    write.add_argument("measured", type=Path, nargs="?", help="ncu.json of `profile`, kept in the project from then on")
    write.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.command == "profile":
        profile(options.out)
    elif options.command == "report":
        from counters_page import write_page

        if options.measured:
            write_json(MEASURED, trim(json.loads(options.measured.read_text())))
        with tempfile.TemporaryDirectory() as folder:
            library = build_library(Path(folder), [*GPU, "-gencode", "arch=compute_90a,code=compute_90a"])
            write_page(options.out, json.loads(EMULATED.read_text()), json.loads(MEASURED.read_text()), find_widths(library))
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_json(options.out, count_emulated(build_library(Path(folder), ["-gencode", "arch=compute_90a,code=compute_90a"])))


if __name__ == "__main__":
    main()
