"""Import what the workbench's verbs import, so that Python keeps it compiled: run once, when an environment is made.

It is read from the checkout, which need not be installed by then, or may be with modules that have moved since.
"""

from __future__ import annotations

import importlib
import io
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

# What a verb imports when it works on an op beside what its module names: the emulated device, the database, the option parser's types.
WORK = ("harness.benchmark.workers", "harness.spec.bounds", "device.emulated", "sqlalchemy.dialects.sqlite", "pybind11")
VERBS = ("bench", "build", "verify")


def main() -> None:
    """Import it all, and parse the arguments of the verbs."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    for name in (*WORK, *(f"harness.commands.{verb}" for verb in VERBS)):
        importlib.import_module(name)
    command_line = importlib.import_module("harness.__main__")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
        command_line.main(["build", "--variant", "none", ""])


if __name__ == "__main__":
    main()
