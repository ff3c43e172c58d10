"""Compile variants and the binding of an op. What is unchanged comes from the cache and starts no compiler.

\b
Examples:
  python -m harness build gemm_bias_act
  python -m harness build gemm_bias_act --variant pipelined
  python -m harness build softmax --target a100 --json
"""

from __future__ import annotations

import sys

from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import build_binding, build_op, describe_result, open_store
from harness.commands.options import AsJson, Jobs, OpName, TargetName, VariantNames
from harness.discover import find_op
from harness.errors import ExitCode
from harness.targets import find_target
from harness.terminal.console import open_progress, print_json


def run(op: OpName, variant: VariantNames = None, target: TargetName = None, jobs: Jobs = None, json: AsJson = False) -> ExitCode:
    """Run the verb."""
    loaded = find_op(op)
    variants = loaded.op.select_variants(variant or [])
    chosen = find_target(target or read_settings().target)
    toolchain, store = find_toolchain(), open_store()
    with open_progress(f"build {op}", len(variants), quiet=json) as progress:
        results = build_op(
            loaded,
            variants,
            toolchain=toolchain,
            target=chosen,
            jobs=jobs,
            store=store,
            on_result=lambda r: progress.advance(
                f"{r.variant.name}: {'failed' if r.error else 'cached' if r.cached else f'{r.seconds:.1f} s'}"
            ),
        )
    binding = build_binding(loaded, toolchain, store=store)
    failed = [r for r in results if r.error]
    if json:
        print_json({"op": op, "target": chosen.name, "binding": str(binding), "variants": [describe_result(r) for r in results]})
    else:
        for r in results:
            if r.resources:
                u = r.resources
                figures = f"{u.registers:3} registers, {u.shared_bytes:6} B static shared, {u.spill_bytes} B spilled"
                print(f"{r.variant.name:75} {figures}")
                for note in r.resources.advice:
                    print(f"{'':75} ptxas: {note}")
        for r in failed:
            print(f"\n{r.variant.name} does not compile:\n{r.error}", file=sys.stderr)
        cached = sum(r.cached for r in results)
        print(f"{len(results) - len(failed)} of {len(results)} variants built ({cached} from the cache) for {chosen.name}")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE
