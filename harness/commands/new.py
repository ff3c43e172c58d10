"""``new``: write the folder of a new op."""

from __future__ import annotations

from harness.commands.options import AsJson, OpName
from harness.errors import ExitCode


def run(op: OpName, json: AsJson = False) -> ExitCode:
    """Write ops/OP/ with a fused elementwise op that at once builds, verifies and benches; then make it yours.

    \b
    Examples:
      python -m harness new scale_shift
      make op=scale_shift new && make op=scale_shift bench
    """
    from harness.console import print_json
    from harness.scaffold import create_op

    folder = create_op(op)
    if json:
        print_json({"op": op, "folder": str(folder), "files": sorted(path.name for path in folder.iterdir())})
        return ExitCode.DONE
    print(f"wrote {folder}/")
    for path in sorted(folder.iterdir()):
        print(f"  {path.name}")
    print(f"next: make op={op} bench, then put your kernels into {folder.name}/kernels.cu and describe them in op.py")
    return ExitCode.DONE
