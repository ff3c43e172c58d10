"""What one launch consists of: the kernels, grids and blocks it queues, and on the emulated device their exact counters."""

from __future__ import annotations

from dataclasses import dataclass

from device.interface import Device, KernelNode
from device.observer import LaunchCounters
from harness.model.features import Features
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import Layout
from harness.verify.case import Case
from harness.verify.inputs import make_inputs


@dataclass(frozen=True)
class LaunchFacts:
    """One variant on one problem: the reason why it is not served ("" when it is), the kernels it launches, and their counters.

    ``counters`` is empty on a real device; ``lost`` says that the process which ran it was lost. ``features`` are what the time model asks
    for, None where the problem is not served.
    """

    reason: str = ""
    nodes: tuple[KernelNode, ...] = ()
    counters: tuple[LaunchCounters, ...] = ()
    lost: bool = False
    features: Features | None = None


def examine_launch(device: Device, op: Op, problem: Problem, launchable: Launchable) -> LaunchFacts:
    """Capture a launch to see its kernels, and on the emulated device run it once with counters on and checks off.

    Inputs are uniform in [-1, 1]. Counting is a run of its own, so that checks and counters do not count each other.
    """
    stream = device.create_stream()
    with Case(device, op, problem, Layout.EXACT) as case:
        reason = launchable.supports(**case.arguments)
        if reason:
            return LaunchFacts(reason)
        case.prepare(launchable)
        with device.capture(stream) as graphs:
            case.launch(launchable, stream)
        nodes = graphs[0].kernel_nodes
        observer = device.observer
        if observer is None:
            return LaunchFacts(nodes=nodes)
        case.upload(make_inputs(op, problem, "uniform"))
        with observer.observe((), counters=True):
            observer.take_counters()
            case.launch(launchable, stream)
            stream.synchronize()
            return LaunchFacts(nodes=nodes, counters=tuple(observer.take_counters()))
