"""Write the optional wheel ``aicf-kernels``: frozen kernels as shared objects, so that calls of them need no compiler.

It holds what the cache would hold, laid out alike: kernels under their seals, the decision and the extension that ``aicf.ops`` calls
through under the hash of their sources. So one that is of another frozen set is not found, and is built. The extension is for the Python
that runs this; the rest is for any. Kernels that are in the cache already are taken from there.

    python scripts/pack_kernels.py --out dist                    every frozen kernel
    python scripts/pack_kernels.py --out dist softmax transpose
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scikit_build_core import build

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from aicf.ops.extension import build_extension  # noqa: E402
from contract.building import build_kernel  # noqa: E402
from contract.decision import build_core  # noqa: E402
from contract.frozen_set import list_ops, read_op  # noqa: E402
from contract.layout import PACKAGED_DIR  # noqa: E402
from contract.libraries.binding import build_binding  # noqa: E402
from device.native import find_prebuilt_dir  # noqa: E402
from device.settings import read_settings  # noqa: E402

PACKAGE = "aicf_kernels"
_PROJECT = """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"

[project]
name = "aicf-kernels"
version = "{version}"
description = "The frozen kernels of AICF as shared objects: {ops}"
requires-python = ">=3.11"
license = "Apache-2.0"
dependencies = ["aicf=={version}"]

[tool.scikit-build]
wheel.cmake = false
wheel.platlib = true
wheel.py-api = "py3"
wheel.packages = ["{package}"]
"""


def pack(ops: Sequence[str], out: Path) -> Path:
    """Return the wheel, in ``out``; raises what building a kernel raises."""
    cache_dir = read_settings().cache_dir
    kernels = [kernel for op in ops for kernel in read_op(op, PACKAGED_DIR).kernels.values()]
    with ThreadPoolExecutor(read_settings().jobs) as pool:
        folders = [path.parent for path in pool.map(lambda kernel: build_kernel(kernel, cache_dir), kernels)]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        for path in (*folders, build_core(cache_dir), build_extension(cache_dir), build_binding(cache_dir)):
            root = next(r for r in (cache_dir, find_prebuilt_dir()) if r is not None and path.is_relative_to(r))
            target = project / PACKAGE / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, target)
        (project / PACKAGE / "__init__.py").write_text(f'"""Frozen kernels of AICF {version}, compiled: {", ".join(ops)}."""\n')
        (project / "pyproject.toml").write_text(_PROJECT.format(version=version, ops=", ".join(ops), package=PACKAGE))
        os.chdir(project)
        return out / build.build_wheel(str(out))


def main() -> None:
    """Write the wheel and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", metavar="OP", help="ops of the frozen set; all where none is given")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the wheel")
    options = parser.parse_args()
    print(pack(options.ops or list_ops(PACKAGED_DIR), options.out.resolve()))


if __name__ == "__main__":
    main()
