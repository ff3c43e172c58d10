"""Fuzz the emulator's readers of untrusted bytes: ``python device/emulator/fuzz/run.py --minutes 5``.

Builds ``fuzz_ptx`` and ``fuzz_fatbin`` (libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer: clang 14 or newer), seeds them with
the PTX and the fat binaries of the emulator's own tests, and runs each for the given time. What is found stays in ``build/fuzz/found``; a
crash's input becomes a case of ``tests/emulator/test_damaged_input.py`` once it is mended.
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
SANITIZERS = "address,undefined,fuzzer-no-link"
GENCODE = "arch=compute_90a,code=[sm_90a,compute_90a]"
MOST_SEED_BYTES = 16 * 1024


def main() -> None:
    """Build, seed, run; the exit code is 1 where a target found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes for each target (default: 5)")
    parser.add_argument("--target", choices=("ptx", "fatbin"), action="append", help="one target alone (default: both)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/fuzz", help="where to build and to keep what was found")
    arguments = parser.parse_args()
    clang = shutil.which("clang++")
    if clang is None:
        sys.exit("clang++ is not on the PATH: libFuzzer comes with it (Debian: apt-get install clang libclang-rt-dev)")
    targets = arguments.target or ["ptx", "fatbin"]
    build(arguments.build, clang, targets)
    write_seeds(arguments.build / "seeds")
    statuses = [run(target, arguments.build, arguments.minutes) for target in targets]
    sys.exit(1 if any(statuses) else 0)


def build(folder: Path, clang: str, targets: list[str]) -> None:
    """Configure and build the targets."""
    configure: list[str | Path] = ["cmake", "-S", ROOT / "device/emulator", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    options = ["-DAICF_ENGINE_LEVELS=v3", f"-DCMAKE_CXX_COMPILER={clang}", f"-DCMAKE_C_COMPILER={clang.removesuffix('++')}"]
    subprocess.run([*configure, *options, f"-DAICF_SANITIZE={SANITIZERS}"], check=True)
    subprocess.run(["ninja", "-C", folder, *(f"fuzz_{target}" for target in targets)], check=True)


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
            subprocess.run(
                [nvcc, "-std=c++20", "-ptx", "-gencode", GENCODE.split(",")[0] + ",code=compute_90a", source, "-o", made], check=False
            )
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


def run(target: str, folder: Path, minutes: float) -> int:
    """Run one target and return its exit status."""
    found = folder / "found"
    corpus = folder / "corpus" / target
    for each in (found, corpus):
        each.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        folder / f"fuzz_{target}",
        corpus,
        folder / "seeds" / target,
        f"-max_total_time={int(60 * minutes)}",
        "-max_len=16384",
    ]
    command += ["-rss_limit_mb=3000", "-timeout=20", "-print_final_stats=1", f"-artifact_prefix={found}/{target}-", "-verbosity=0"]
    if target == "ptx":
        command.append(f"-dict={ROOT / 'device/emulator/fuzz/ptx.dict'}")
    print(f"fuzz_{target}: {minutes} minutes", flush=True)
    return subprocess.run(command, check=False, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}).returncode


if __name__ == "__main__":
    main()
