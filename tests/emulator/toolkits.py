"""Run the tests of the runtime's ABI and of kernels with the compiler of other releases: ``python tests/emulator/toolkits.py 13.1 13.5``.

Downloads the wheels of nvcc, its parts and the runtime with pip to a temporary folder, and installs nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime")
NAMES = ("runtime_fatbin", "runtime_abi", "targets", "kernels", "debug_builds", "cluster", "textures")
SYMBOLS = "tests/emulator/test_runtime_device.py::test_every_symbol_of_the_real_library_is_there_with_its_version"


def fetch(release: str, folder: Path) -> None:
    """Unpack a release's wheels below `folder`, where an import of ``nvidia`` finds them. Raises CalledProcessError when pip finds none."""
    wheels = folder / "wheels"
    names = [*(f"{name}=={release}.*" for name in WHEELS), "nvidia-cuda-cccl>=13,<14"]  # numbered apart; the newest serves all
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), *names], check=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    for tool in (*folder.glob("nvidia/cu13/bin/*"), *folder.glob("nvidia/cu13/nvvm/bin/*")):
        if tool.is_file():
            tool.chmod(0o755)


def main() -> int:
    """Test each release; 1 when a test fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    failed = []
    for release in parser.parse_args().releases:
        with tempfile.TemporaryDirectory() as folder:
            fetch(release, Path(folder))
            path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
            tests = [*(f"tests/emulator/test_{name}.py" for name in NAMES), SYMBOLS]
            # Later releases have a field more at the end of a conditional node's parameters, which lie in a union of fixed size.
            not_these = "--deselect=tests/emulator/test_runtime_abi.py::test_layouts_are_cudas"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, not_these]
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False)
            print(f"CUDA {release}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
            failed += [release] if done.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
