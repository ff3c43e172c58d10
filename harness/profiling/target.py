"""The process under the profiler: it launches one warm variant on one problem, inside its own range.

    python -m harness.profiling.target OP VARIANT PROBLEM LAUNCHES guarded|exact

Nothing is verified, timed or recorded here: what is measured is a launch, and the tool measures it. Builds come from the cache, which the
profiling process filled before.
"""

from __future__ import annotations

import sys

from device import open_device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.discover import find_op
from harness.errors import ExitCode
from harness.nvtx_ranges import mark_range
from harness.targets import find_target
from harness.verify.allocations import Layout
from harness.verify.case import Case
from harness.verify.inputs import make_inputs

_NUM_WARMUPS = 3
# Ranges end in this word; the tools' filters ask for it.
PHASE = "profile"
NOT_SERVED = "harness: not served"


def launch_variant(op_name: str, variant_name: str, problem_name: str, num_launches: int, layout: Layout) -> str:
    """Launch a variant; return "" or why the problem is not served. The exact layout shows a checker the true bounds of each tensor."""
    loaded = find_op(op_name)
    op = loaded.op
    variant, problem = op.select_variants([variant_name])[0], op.select_problems("bench", [problem_name])[0]
    toolchain = find_toolchain()
    build = build_op(loaded, [variant], toolchain=toolchain, target=find_target(read_settings().target))[0]
    if build.library is None:
        return f"it does not compile:\n{build.error}"
    device = open_device()
    launchable = open_variant(op, build_binding(loaded, toolchain), build.library, variant)
    stream = device.create_stream(non_blocking=True)
    with Case(device, op, problem, layout) as case:
        if reason := launchable.supports(**case.arguments):
            return reason
        case.upload(make_inputs(op, problem, "uniform"))
        case.prepare(launchable)
        for _ in range(_NUM_WARMUPS):
            case.launch(launchable, stream)
        stream.synchronize()
        for _ in range(num_launches):
            with mark_range(op.name, variant.name, problem.name, PHASE):
                case.launch(launchable, stream)
                stream.synchronize()
    return ""


if __name__ == "__main__":
    op_word, variant_word, problem_word, launches_word, layout_word = sys.argv[1:]
    if refusal := launch_variant(op_word, variant_word, problem_word, int(launches_word), Layout(layout_word)):
        print(f"{NOT_SERVED}: {refusal}", file=sys.stderr)
        sys.exit(ExitCode.CHECK_FAILED)
