"""Turn the working directory into a project: pyproject.toml with [tool.aicf], ops/, a Makefile, a first op and its test.

Commands then find everything from the working directory upwards: ops, records and cache (.aicf/), and the project's own frozen set.
Existing files stay as they are.

\b
Examples:
  python -m harness init
  python -m harness init my_norm --kind reduction
  # after an upgrade: the headers that ops share
  python -m harness init --update
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device.settings import find_project_root, require_no_checkout
from harness.commands.options import AsJson
from harness.errors import ExitCode, UseError
from harness.projects import create_project, update_shared
from harness.scaffold import find_kind
from harness.terminal.console import print_json

FirstOp = Annotated[str | None, typer.Argument(metavar="[OP]", help="the first op's name (scale_shift)", show_default=False)]
Kind = Annotated[str, typer.Option("--kind", "-k", metavar="elementwise|reduction|gemm", help="what the first op starts from")]
Update = Annotated[bool, typer.Option("--update", help="in an existing project: refresh ops/common from this version of AICF")]


def run(op: FirstOp = None, kind: Kind = "elementwise", update: Update = False, json: AsJson = False) -> ExitCode:
    """Run the verb."""
    require_no_checkout()
    if update:
        if op is not None:
            raise UseError(f"--update creates no op; `aicf new {op}` does")
        changed = update_shared(find_project_root())
        if json:
            print_json({"changed": changed})
        else:
            print("\n".join(f"ops/common/{name}" for name in changed) or "ops/common is as this workbench has it")
        return ExitCode.DONE
    name = op or "scale_shift"
    folder = Path.cwd()
    written, kept = create_project(folder, name, find_kind(kind))
    if json:
        print_json({"folder": str(folder), "op": name, "written": sorted(map(str, written)), "kept": sorted(map(str, kept))})
        return ExitCode.DONE
    for path in written:
        print(f"wrote {path.relative_to(folder)}{'/' if path.is_dir() else ''}")
    for path in kept:
        print(f"kept {path.relative_to(folder)}, which was there")
    print(f"next: git init, then make op={name} bench (or aicf bench {name}), and make test")
    return ExitCode.DONE
