"""Variants of an op as it is now, built and loaded to be timed beside its frozen kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contract.entry_points import CALLS, EntryPoints
from contract.frozen_set import FrozenOp, extend_op
from contract.layout import name_symbol
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import build_op
from harness.build.interface import describe_interface, read_api
from harness.discover import find_op
from harness.errors import FrozenUseError
from harness.targets import find_target


@dataclass(frozen=True)
class Candidates:
    """Entry points and machine codes' hashes by the variants' names, and the frozen kernels beside them, called by the same interface."""

    frozen: FrozenOp
    calls: Mapping[str, EntryPoints] = field(default_factory=dict)
    code_hashes: Mapping[str, str] = field(default_factory=dict)


def open_candidates(frozen: FrozenOp, names: Sequence[str]) -> Candidates:
    """Build the variants that ``names`` (kernels, variants or patterns) say, none where there are no names.

    Raises SpecError where a name fits none, and :class:`FrozenUseError` where one does not compile, or the op's interface is neither that
    of its frozen kernels nor extends it: both are called with the same parameters.
    """
    if not names:
        return Candidates(frozen)
    loaded = find_op(frozen.name)
    beside = extend_op(frozen, describe_interface(loaded.op, read_api(loaded)))
    if beside is None:
        raise FrozenUseError(
            f"{frozen.name}: its interface neither is that of its frozen kernels, beside which variants would be timed, nor extends it"
        )
    variants = loaded.op.select_variants(names)
    settings = read_settings()
    builds = build_op(loaded, variants, toolchain=find_toolchain(), target=find_target(settings.target), jobs=settings.jobs)
    calls = {}
    for build in builds:
        if build.library is None:
            raise FrozenUseError(f"{build.variant.name} does not compile: `python -m harness build {frozen.name}` says why")
        symbols = {call: name_symbol(frozen.name, call, build.variant.symbol_suffix) for call in CALLS}
        calls[build.variant.name] = EntryPoints(symbols, build.library)
    return Candidates(beside, calls, {b.variant.name: b.code_hash for b in builds})
