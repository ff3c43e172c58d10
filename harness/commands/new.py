"""Write ops/OP/ with an op that builds, verifies and benches from the start; then make it yours.

It is a fused elementwise op, a sum over rows, or a product of matrices, each in fp32 with an activation and a ladder of kernels.

\b
Examples:
  python -m harness new scale_shift
  # one value per row: norms, losses, softmaxes
  python -m harness new row_norm --kind reduction
  make op=batched_product new args='--kind gemm'
  make op=batched_product bench
"""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson, OpName
from harness.errors import ExitCode
from harness.scaffold import create_op, find_kind
from harness.terminal.console import print_json

Kind = Annotated[
    str,
    typer.Option(
        "--kind", "-k", metavar="elementwise|reduction|gemm", help="what it starts from: tensors, kernels and maths that you then replace"
    ),
]


def run(op: OpName, kind: Kind = "elementwise", json: AsJson = False) -> ExitCode:
    """Run the verb."""
    folder = create_op(op, find_kind(kind))
    if json:
        print_json({"op": op, "kind": kind, "folder": str(folder), "files": sorted(path.name for path in folder.iterdir())})
        return ExitCode.DONE
    print(f"wrote {folder}/")
    for path in sorted(folder.iterdir()):
        print(f"  {path.name}")
    print(f"next: make op={op} bench, then put your kernels into {folder.name}/kernels.cu and describe them in op.py")
    return ExitCode.DONE
