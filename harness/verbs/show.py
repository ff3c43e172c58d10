"""``show``: what the compiler made of one variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from device.cubin import read_ptx
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import BuildResult, build_op, describe_result
from harness.build.disassemble import disassemble
from harness.build.generate import generate_sources
from harness.discover import LoadedOp
from harness.errors import BuildError, SpecError
from harness.targets import find_target
from harness.verbs.naming import OpLike, take_op


@dataclass(frozen=True)
class Shown:
    """The build of one variant, and the texts that were asked for: ``ptx``, ``sass``, ``log``."""

    op: str
    target: str
    build: BuildResult
    texts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"op": self.op, "target": self.target, **describe_result(self.build), **self.texts}


def show(op: OpLike, variant: str, ptx: bool = False, sass: bool = False, log: bool = False, target: str | None = None) -> Shown:
    """Build a variant and read what is asked for. Raises SpecError unless one variant is named, BuildError where it does not compile."""
    loaded = take_op(op)
    variants = loaded.op.select_variants([variant])
    if len(variants) != 1:
        raise SpecError(f"{variant!r} names {len(variants)} variants; show takes one of: {', '.join(v.name for v in variants)}")
    toolchain, chosen = find_toolchain(), find_target(target or read_settings().target)
    result = build_op(loaded, variants, toolchain=toolchain, target=chosen)[0]
    if result.library is None:
        raise BuildError(f"{variant} does not compile:\n{result.error}")
    texts: dict[str, str] = {}
    if ptx:
        texts["ptx"] = read_ptx(result.library)
    if sass:
        texts["sass"] = disassemble(result.library, toolchain)
    if log:
        texts["log"] = (result.library.parent / "ptxas.txt").read_text()
    return Shown(loaded.op.name, chosen.name, result, texts)


def show_interface(op: OpLike) -> str:
    """Return the C interface that is generated from the op's ``op.py``; raises SpecError for one that is written by hand."""
    loaded: LoadedOp = take_op(op)
    header = f"{loaded.op.name}/params.h"
    texts = generate_sources(loaded)
    if header not in texts:
        raise SpecError(f"op {loaded.op.name} writes its C interface by hand, or holds the generated one: read {loaded.folder}/api.hpp")
    return texts[header]
