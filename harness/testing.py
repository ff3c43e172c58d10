"""What the tests of ops share: an op's variants, built and loaded for the device of the test run, and proved right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from device import Device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import BuildResult, build_binding, build_op, open_variant
from harness.discover import LoadedOp, load_op
from harness.spec import Launchable, Variant
from harness.targets import find_target
from harness.verify.findings import ProblemResult
from harness.verify.judge import Verifier
from harness.verify.plan import Effort


class OpUnderTest:
    """The op of a folder, as the test beside its ``op.py`` sees it."""

    def __init__(self, folder: Path) -> None:
        self.loaded = LoadedOp(load_op(folder), folder)
        self.op = self.loaded.op

    def build(self, variants: Iterable[Variant], target: str | None = None) -> dict[str, BuildResult]:
        """Return what became of each variant, by its name; what has not changed since is not compiled again."""
        chosen = find_target(target or read_settings().target)
        results = build_op(self.loaded, list(variants), toolchain=find_toolchain(), target=chosen)
        return {r.variant.name: r for r in results}

    def open(self, variants: Iterable[Variant]) -> Callable[[Variant], Launchable]:
        """Build variants together; returns what loads one of them, and fails with the compiler's text where there is none."""
        results = self.build(variants)
        binding = build_binding(self.loaded, find_toolchain())

        def open_one(variant: Variant) -> Launchable:
            result = results[variant.name]
            assert result.library is not None, result.error
            return open_variant(self.op, binding, result.library, variant)

        return open_one

    def verify(self, device: Device, variant: Variant, launchable: Launchable, effort: Effort) -> list[ProblemResult]:
        """Prove a variant on every problem and return what was found; a fault fails the test, with all that were found."""
        result = Verifier(self.op, device, effort).verify(variant, launchable)
        faults = [f"{p.problem}: {fault.describe()}" for p in result.problems for fault in p.faults]
        assert not faults, "\n".join(faults)
        return list(result.problems)
