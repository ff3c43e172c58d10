"""Running a variant for its inspection: build, disassemble, count by line on the emulated device, model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from device import open_device
from device.cubin import read_ptx
from device.interface import KernelNode
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op, read_resources
from harness.build.disassemble import read_sass
from harness.build.resources import Occupancy, Resources
from harness.discover import LoadedOp
from harness.errors import BuildError
from harness.model.features import Features, make_launch, plan_launch
from harness.model.time_model import predict
from harness.profiling.side_by_side import Inspection, make_kernel, read_sources
from harness.spec import SpecError
from harness.targets import find_target
from harness.verify.allocations import Layout
from harness.verify.case import Case
from harness.verify.inputs import make_inputs


def inspect_variant(loaded: LoadedOp, variant_name: str, problem_name: str, target_name: str | None) -> Inspection:
    """Return everything that is shown of one variant. Raises the errors of its parts."""
    op = loaded.op
    variants = op.select_variants([variant_name])
    if len(variants) != 1:
        raise SpecError(f"{variant_name!r} names {len(variants)} variants; inspect takes one of: {', '.join(v.name for v in variants)}")
    target, toolchain = find_target(target_name or read_settings().target), find_toolchain()
    build = build_op(loaded, variants, toolchain=toolchain, target=target)[0]
    if build.library is None:
        raise BuildError(f"{variant_name} does not compile:\n{build.error}")
    problem = op.select_problems("emulated", [problem_name] if problem_name else [])[0]
    device = open_device("emulated")
    assert device.observer is not None
    launchable = open_variant(op, build_binding(loaded, toolchain), build.library, variants[0])
    stream = device.create_stream()
    with Case(device, op, problem, Layout.EXACT) as case:
        if reason := launchable.supports(**case.arguments):
            raise SpecError(f"{variant_name} does not serve {problem.name}: {reason}")
        case.upload(make_inputs(op, problem, "uniform"))
        case.prepare(launchable)
        with device.capture(stream) as graphs:
            case.launch(launchable, stream)
        with device.observer.observe((), counters=True):
            device.observer.take_counters()
            device.observer.lines()
            case.launch(launchable, stream)
            stream.synchronize()
            counted = device.observer.take_counters()
            lines = {k.kernel: k for k in device.observer.lines()}
    sass = {k.name: k for k in read_sass(build.library, toolchain)}
    ptx = read_ptx(build.library)
    known = read_resources(build)
    kernels, launches = [], []
    sources = read_sources((sass[c.kernel] for c in counted), loaded.folder.parent)
    for node, count in zip(graphs[0].kernel_nodes, counted, strict=True):
        resources = known.get(count.kernel, build.resources or Resources(0))
        occupancy = plan_launch(node, resources, target)
        code, by_line = sass[count.kernel], lines.get(count.kernel)
        figures = describe_launch(node, resources, occupancy)
        kernels.append(make_kernel(code, by_line, ptx, sources, grid=node.grid, block=node.block, figures=figures))
        launches.append(make_launch(node, occupancy, resources, count.counts, count.kernel, code, by_line))
    cost = op.cost(problem)
    features = Features(op.name, build.variant.name, problem.name, cost.flops, cost.bytes_read, cost.bytes_written, tuple(launches))
    try:
        p = predict(features, target)
        model = {"time": f"{p.time_us:.2f} us", "interval": f"{p.low_us:.2f} to {p.high_us:.2f} us", "bound": p.bound}
    except SpecError as error:
        model = {"not modelled": str(error)}
    return Inspection(op.name, build.variant.name, problem.name, target.name, tuple(kernels), model)


def describe_launch(node: KernelNode, r: Resources, occupancy: Occupancy) -> Mapping[str, str]:
    """Return a launch's figures by name, for people."""
    return {
        "grid": "x".join(map(str, node.grid)),
        "block": f"{math.prod(node.block)} threads",
        "registers": str(r.registers),
        "shared": f"{r.shared_bytes} B static, {node.dynamic_shared_bytes} B dynamic",
        "stack": f"{r.stack_bytes} B",
        "spills": f"{r.spill_bytes} B",
        "occupancy": f"{100 * occupancy.share:.0f} % ({occupancy.blocks_per_sm} blocks an SM, by {occupancy.limiter})",
    }
