"""Record what the tensor copies of an NVIDIA GPU do: ``python3 tests/emulator/tma_record.py --output tma.npz``.

Runs every copy of :mod:`tma_model` on the GPU, compares the image of shared memory (and, after a store, the tensor) with the model there
and then, and writes digests of all images, the whole of those that differ or that explore, and the CUresults of the encoders.
Needs a GPU, nvcc of CUDA 13.0 on the PATH, and NumPy; nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from tma_cases import encode_cases, reduction_cases
from tma_device import TensorDevice, TensorMapError
from tma_model import Bytes, Copy, digest, load, make_corpus, make_inputs, store

GENCODE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")


def build(folder: Path, nvcc: str) -> tuple[Path, Path]:
    """Compile ``tma.cu``; returns the library and NVIDIA's runtime."""
    root = Path(nvcc).resolve().parent.parent
    found = [root / part / "libcudart.so.13" for part in ("targets/x86_64-linux/lib", "lib64", "lib")]
    runtime = next(path for path in found if path.exists())
    source, made, library = Path(__file__).with_name("tma.cu"), folder / "tma.o", folder / "tma.so"
    flags = ("-Xcompiler", "-fPIC", "-std=c++20", "-O3", "-cudart", "shared")
    for command in (
        [nvcc, *flags, *GENCODE, "-c", str(source), "-o", str(made)],
        ["g++", "-shared", str(made), str(runtime), "-o", str(library)],
    ):
        subprocess.run(command, check=True)
    return library, runtime


def run_copy(device: TensorDevice, seed: int, copy: Copy, entry: dict[str, Any], images: dict[str, Bytes]) -> int:
    """Run one copy and note what came out; returns 1 when it is not as the model says."""
    tensor, image = make_inputs(copy, seed)
    note = " (explores)" if copy.explores else ""
    after, all_came = device.load(copy, tensor, image)
    entry |= {"load": digest(after), "all_came": bool(all_came)}
    wrong = int((after != load(copy, tensor, image)).sum())
    if wrong or copy.explores or not all_came:
        images[f"{copy.name}.load"] = after
        print(f"{copy.name}: {wrong} bytes differ{note}{'' if all_came else ', bytes are missing'}")
    if not copy.can_store:
        return int(not copy.explores and (wrong or not all_came))
    stored = device.store(copy, tensor, image)
    entry["store"] = digest(stored)
    wrong_store = int((stored != store(copy, tensor, image)).sum())
    if wrong_store or copy.explores:
        images[f"{copy.name}.store"] = stored
        print(f"{copy.name}: store: {wrong_store} bytes differ{note}")
    return int(not copy.explores and (wrong or wrong_store or not all_came))


def run_reduction(device: TensorDevice, index: int, entry: dict[str, Any], images: dict[str, Bytes]) -> int:
    name, copy, op, tensor, image = reduction_cases()[index]
    images[f"reduce.{name}"] = device.store(copy, tensor, image, op)
    entry["done"] = True
    return 0


def work(device: TensorDevice, items: list[str]) -> tuple[dict[str, Any], dict[str, Bytes]]:
    """Run items in turn, up to the first that ends the context; each one is recorded under its name."""
    corpus = make_corpus()
    facts: dict[str, Any] = {}
    images: dict[str, Bytes] = {}
    for item in items:
        kind, _, number = item.partition(":")
        entry = facts.setdefault(item, {"differs": 0})
        try:
            if kind == "codes":
                address = device.upload(np.zeros(1 << 20, np.uint8))
                entry["codes"] = {
                    name: device.encode_status(copy, address, **changes)
                    for name, copy, changes in encode_cases(address)
                    if not name.startswith("null") and ", null" not in name
                }
            elif kind == "reduce":
                run_reduction(device, int(number), entry, images)
            else:
                entry["name"] = corpus[int(number)].name
                entry["differs"] = run_copy(device, int(number), corpus[int(number)], entry, images)
        except TensorMapError as error:
            entry["error"] = str(error)
        except RuntimeError as error:
            entry["error"] = str(error)
            print(f"{item} {entry.get('name', '')}: {error}")
            break
    return facts, images


def work_apart(items: list[str], library: Path, runtime: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Bytes]]:
    """Run items in processes of their own: what follows an item that ends the context goes to the next process."""
    facts: dict[str, Any] = {}
    images: dict[str, Bytes] = {}
    while items:
        output = folder / f"{items[0].replace(':', '_')}.npz"
        command = [sys.executable, __file__, "--library", str(library), "--runtime", str(runtime), "--output", str(output)]
        done = subprocess.run([*command, "--items", ",".join(items)], capture_output=True, text=True, timeout=120, check=False)
        print(done.stdout, end="")
        found: dict[str, Any] = {}
        if done.returncode == 0:
            found = json.loads(output.with_suffix(".json").read_text())
            with np.load(output) as saved:
                images |= {name: saved[name] for name in saved.files}
        else:
            found = {items[0]: {"error": done.stderr[-300:], "differs": 1}}
            print(f"{items[0]}: {done.stderr[-300:]}")
        facts |= found
        items = [item for item in items if item not in found]
    return facts, images


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--library", type=Path, help="of a process that runs items")
    parser.add_argument("--runtime", type=Path, help="of a process that runs items")
    parser.add_argument("--items", help="what such a process runs")
    args = parser.parse_args()
    if args.items:
        runtime = ctypes.CDLL(str(args.runtime), mode=ctypes.RTLD_GLOBAL)
        facts, images = work(TensorDevice(args.library, runtime), args.items.split(","))
        args.output.with_suffix(".json").write_text(json.dumps(facts) + "\n")
        np.savez_compressed(args.output, **images)
        return 0
    corpus = make_corpus()
    known = [f"copy:{i}" for i, copy in enumerate(corpus) if not copy.explores]
    alone = [[f"copy:{i}"] for i, copy in enumerate(corpus) if copy.explores]
    batches = [["codes"], *([f"reduce:{i}"] for i in range(len(reduction_cases()))), *(known[i::6] for i in range(6)), *alone]
    facts, images = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        if args.library:
            library, runtime_path = args.library, args.runtime
        else:
            library, runtime_path = build(Path(folder), args.nvcc)
        with ThreadPoolExecutor(8) as pool:
            for found, more in pool.map(lambda batch: work_apart(batch, library, runtime_path, Path(folder)), batches):
                facts |= found
                images |= more
    reductions = [case[0] for case in reduction_cases()]
    summary = {
        "copies": {entry["name"]: entry for item, entry in facts.items() if item.startswith("copy") and "name" in entry},
        "reductions": {name: facts[f"reduce:{i}"].get("error", "done") for i, name in enumerate(reductions)},
        "codes": facts["codes"].get("codes", {}),
    }
    args.output.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
    np.savez_compressed(args.output, **images)
    differ = sum(entry["differs"] for entry in facts.values())
    errors = sum("error" in entry for entry in facts.values())
    print(f"{len(summary['copies'])} copies, {differ} not as the model says, {errors} errors; {len(summary['codes'])} codes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
