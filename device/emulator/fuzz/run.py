"""Fuzz the emulator's readers of untrusted bytes: ``python device/emulator/fuzz/run.py --minutes 5``.

Builds ``fuzz_ptx`` and ``fuzz_fatbin`` with AddressSanitizer and UndefinedBehaviorSanitizer, seeds them with the PTX and the fat binaries
of the emulator's own tests, and runs each for the given time. With clang 14 or newer, libFuzzer guides them by coverage; without it a
plain driver (``plain.cpp``, beside the objects of ``make sanitize``) mutates the seeds blindly, the same way for the same ``--seed``. What
is found stays in ``build/fuzz/found``; a crash's input becomes a case of ``tests/emulator/test_damaged_input.py`` once it is mended.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SANITIZERS = "address,undefined"
GENCODE = "arch=compute_90a,code=[sm_90a,compute_90a]"
MOST_SEED_BYTES = 16 * 1024


def main() -> None:
    """Build, seed, run; the exit code is 1 where a target found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes for each target (default: 5)")
    parser.add_argument("--target", choices=("ptx", "fatbin"), action="append", help="one target alone (default: both)")
    parser.add_argument("--seed", type=int, default=1, help="of the plain driver's and of libFuzzer's mutations (default: 1)")
    parser.add_argument("--plain", action="store_true", help="the plain driver, also where clang is there")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build/fuzz", help="where to keep seeds, corpus and what was found, and to build with clang"
    )
    arguments = parser.parse_args()
    clang = None if arguments.plain else shutil.which("clang++")
    if clang is None and not arguments.plain:
        print(
            "no clang++ on the PATH (Debian: apt-get install clang libclang-rt-dev): the plain driver mutates without coverage", flush=True
        )
    targets = arguments.target or ["ptx", "fatbin"]
    programs = build(arguments.build if clang else ROOT / "build/sanitize", clang, targets)
    write_seeds(arguments.build / "seeds")
    statuses = [run(target, programs, clang is not None, arguments) for target in targets]
    sys.exit(1 if any(statuses) else 0)


def build(folder: Path, clang: str | None, targets: list[str]) -> Path:
    """Configure and build the targets, and return the folder they are in; ``clang`` None is the system's own compiler."""
    configure: list[str | Path] = ["cmake", "-S", ROOT / "device/emulator", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    options = ["-DAICF_ENGINE_LEVELS=v3", f"-DAICF_SANITIZE={SANITIZERS}{',fuzzer-no-link' if clang else ''}"]
    if clang:
        options += [f"-DCMAKE_CXX_COMPILER={clang}", f"-DCMAKE_C_COMPILER={clang.removesuffix('++')}"]
    subprocess.run([*configure, *options], check=True)
    subprocess.run(["ninja", "-C", folder, *(f"fuzz_{target}" for target in targets)], check=True)
    return folder


def write_seeds(folder: Path) -> None:
    """Compile the tests' kernels to PTX and to fat binaries of each compression, and cut the opcode corpus into small modules."""
    sys.path.insert(0, str(ROOT / "tests/emulator/opcodes"))
    from corpus import make_corpus, write_module  # type: ignore[import-not-found]

    nvcc = find_nvcc()
    for name in ("ptx", "fatbin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "tests/emulator").rglob("*.cu")):
        made = folder / "ptx" / f"{source.stem}.ptx"
        if not made.exists():
            gencode = GENCODE.split(",")[0] + ",code=compute_90a"
            subprocess.run([nvcc, "-std=c++20", "-ptx", "-gencode", gencode, f"-I{ROOT / 'ops'}", source, "-o", made], check=False)
    for mode in ("none", "speed", "size"):
        made = folder / "fatbin" / f"{mode}.fatbin"
        source = ROOT / "tests/emulator/runtime_kernels.cu"
        subprocess.run([nvcc, "-fatbin", f"--compress-mode={mode}", "-gencode", GENCODE, source, "-o", made], check=True)
    for index, instruction in list(enumerate(make_corpus()))[::23]:
        (folder / "ptx" / f"op{index}.ptx").write_text(write_module([(index, instruction)]))
    for seed in (folder / "ptx").iterdir():
        if seed.stat().st_size > MOST_SEED_BYTES:  # long inputs make slow rounds; their parts are in the small ones
            seed.unlink()


def find_nvcc() -> str:
    """Return the compiler on the PATH, else that of the environment's wheels; ends with the remedy where there is none."""
    wheel = importlib.util.find_spec("nvidia")
    folders = [Path(folder) / "cu13/bin" for folder in (wheel.submodule_search_locations or [])] if wheel else []
    found = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(map(str, folders)))
    return found or sys.exit("nvcc is neither on the PATH nor in this Python's environment: run `make env`")


def run(target: str, programs: Path, guided: bool, arguments: argparse.Namespace) -> int:
    """Run one target, ``guided`` by libFuzzer or with the plain driver, and return its exit status."""
    found, corpus = arguments.build / "found", arguments.build / "corpus" / target
    for each in (found, corpus):
        each.mkdir(parents=True, exist_ok=True)
    seconds = int(60 * arguments.minutes)
    command: list[str | Path] = [programs / f"fuzz_{target}", f"-seed={arguments.seed}"]
    if guided:
        command += [corpus, f"-max_total_time={seconds}", "-max_len=16384", "-rss_limit_mb=3000", "-timeout=20"]
        command += ["-print_final_stats=1", f"-artifact_prefix={found}/{target}-", "-verbosity=0"]
    else:
        command += [f"-seconds={seconds}", f"-prefix={found}/{target}-"]
    command.append(arguments.build / "seeds" / target)
    if target == "ptx":
        command.append(f"-dict={ROOT / 'device/emulator/fuzz/ptx.dict'}")
    print(f"fuzz_{target}: {arguments.minutes} minutes", flush=True)
    return subprocess.run(command, check=False, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}).returncode


if __name__ == "__main__":
    main()
