"""What the tests of ops share: an op's variants, built, loaded for the device of the test run, and verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device import Device, choose_device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import BuildResult, build_op
from harness.discover import LoadedOp, load_op
from harness.spec import Count, Launchable, Problem, Variant
from harness.targets import Target, find_target
from harness.verify.case import Case
from harness.verify.findings import ProblemResult
from harness.verify.judge import Verifier
from harness.verify.plan import Effort


def find_test_target() -> Target:
    """Return the target of what a test run builds for itself: without machine code where it has no GPU, which is all that would run it."""
    target = find_target(read_settings().target)
    return target if choose_device().name == "cuda" else target.without_machine_code()


class OpUnderTest:
    """The op of a folder, as the test beside its ``op.py`` sees it, built for the setting's target unless told of another.

    What only the emulated device runs has no machine code, but where a test speaks of it: ``has_machine_code``.
    """

    def __init__(self, folder: Path, *, has_machine_code: bool = False) -> None:
        self._has_machine_code = has_machine_code
        self.loaded = LoadedOp(load_op(folder), folder)
        self.op = self.loaded.op

    def build(self, variants: Iterable[Variant], target: str | None = None) -> dict[str, BuildResult]:
        """Return what became of each variant, by its name; what has not changed since is not compiled again."""
        chosen = find_target(target or read_settings().target) if target or self._has_machine_code else find_test_target()
        results = build_op(self.loaded, list(variants), toolchain=find_toolchain(), target=chosen)
        return {r.variant.name: r for r in results}

    def open(self, variants: Iterable[Variant]) -> Callable[[Variant], Launchable]:
        """Return what builds and loads one of the variants when it is first asked for; it fails with the compiler's text."""
        known = {v.name: v for v in variants}

        @cache
        def open_named(name: str) -> Launchable:
            result = self.build([known[name]])[name]
            assert result.library is not None, result.error
            return open_variant(self.op, build_binding(self.loaded, find_toolchain()), result.library, known[name])

        return lambda variant: open_named(variant.name)

    def verify(self, device: Device, variant: Variant, launchable: Launchable, effort: Effort) -> list[ProblemResult]:
        """Prove a variant on every problem and return what was found; a fault fails the test, with all that were found."""
        result = Verifier(self.op, device, effort).verify(variant, launchable)
        faults = [f"{p.problem}: {fault.describe()}" for p in result.problems for fault in p.faults]
        assert not faults, "\n".join(faults)
        return list(result.problems)

    def launch(
        self, device: Device, launchable: Launchable, problem: Problem, inputs: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[np.generic]]:
        """Launch a variant once and return its outputs by name; what is not among ``inputs`` must be none of the problem's."""
        with Case(device, self.op, self.op.complete(problem)) as case:
            case.upload(dict(inputs))
            case.prepare(launchable)
            case.launch(launchable, device.create_stream(non_blocking=True))
            device.synchronize()
            return case.read_outputs()

    def widen(self, variant: Variant, size: str, wanted: int) -> int:
        """Return a size as wanted, or the least that the variant serves."""
        domain = self.op.find_kernel(variant.kernel).domain
        conditions = domain(variant.tunables) if domain is not None else ()
        return max(wanted, *(c.min for c in conditions if isinstance(c, Count) and dict(c.steps) == {size: 1}), 1)

    def patch(self, folder: Path, file: str, old: str, new: str) -> OpUnderTest:
        """Return the op as a copy in ``folder`` with a text of one of its sources replaced: a liar that differs by one idea.

        ``file`` is a path below ``ops/``; ``old`` must occur in it exactly once.
        """
        for source in (self.loaded.folder, self.loaded.include_dir / "common"):
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("test_*", "__pycache__"))
        text = (folder / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        (folder / file).write_text(text.replace(old, new))
        return OpUnderTest(folder / self.op.name)
