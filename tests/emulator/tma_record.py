"""Record what the tensor copies of an NVIDIA GPU do: ``python3 tests/emulator/tma_record.py --output tma.npz``.

Runs every copy of :mod:`tma_model` on the GPU, compares the image of shared memory (and, after a store, the tensor) with the model there
and then, and writes digests of all images, the whole of those that differ or that explore, and the CUresults of the encoders.
Needs a GPU, nvcc of CUDA 13.0 on the PATH, and NumPy; nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from tma_cases import encode_cases, reduction_cases
from tma_device import TensorDevice
from tma_model import Bytes, load, make_corpus, make_inputs, store

GENCODE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")


def digest(values: Bytes) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:32]


def build(folder: Path, nvcc: str) -> tuple[Path, ctypes.CDLL]:
    """Compile ``tma.cu`` and load NVIDIA's runtime."""
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
    return library, ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)


def record(device: TensorDevice) -> tuple[dict[str, Any], dict[str, Bytes], int]:
    """Return digests and codes, whole images, and the number of copies that are not as the model says."""
    digests: dict[str, Any] = {}
    images: dict[str, Bytes] = {}
    differ = 0
    for name, copy, op, tensor, image in reduction_cases():
        images[f"reduce.{name}"] = device.store(copy, tensor, image, op)
    address = device.upload(np.zeros(1 << 20, np.uint8))
    codes = {name: device.encode_status(copy, address, **changes) for name, copy, changes in encode_cases(address)}
    for seed, copy in enumerate(make_corpus()):  # those that explore come last: one may end the context
        tensor, image = make_inputs(copy, seed)
        entry: dict[str, Any] = {}
        try:
            after, all_came = device.load(copy, tensor, image)
        except RuntimeError as error:
            entry["error"] = str(error)
            print(f"{copy.name}: {error}")
            if "CUresult" not in str(error):
                break
        else:
            entry |= {"load": digest(after), "all_came": bool(all_came)}
            expected = load(copy, tensor, image)
            wrong = int((after != expected).sum())
            if wrong or copy.explores or not all_came:
                images[f"{copy.name}.load"] = after
                print(
                    f"{copy.name}: {wrong} bytes differ{'' if all_came else ', and bytes are missing'}{' (explores)' if copy.explores else ''}"
                )
                differ += not copy.explores
            if not copy.is_im2col:
                stored = device.store(copy, tensor, image)
                entry["store"] = digest(stored)
                wrong = int((stored != store(copy, tensor, image)).sum())
                if wrong or copy.explores:
                    images[f"{copy.name}.store"] = stored
                    print(f"{copy.name}: store: {wrong} bytes differ" + (" (explores)" if copy.explores else ""))
                    differ += not copy.explores
        digests[copy.name] = entry
    return {"copies": digests, "codes": codes}, images, differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library, runtime = build(Path(folder), args.nvcc)
        facts, images, differ = record(TensorDevice(library, runtime))
    args.output.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    np.savez_compressed(args.output, **images)
    print(f"{len(facts['copies'])} copies, {differ} not as the model says; {len(facts['codes'])} codes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
