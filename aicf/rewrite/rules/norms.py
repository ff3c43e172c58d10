"""Norms and precision: insert a norm, and compute in another dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicf.errors import RewriteError
from aicf.rewrite.blocks import NORMS, GatedNorm
from aicf.rewrite.copying import find_module
from aicf.rewrite.draft import Draft
from aicf.rewrite.records import Map
from aicf.rewrite.rules.blocks import Remove, insert_behind
from aicf.rewrite.rules.rule import Rule

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class InsertNorm(Rule):
    """Put a norm over the last axis behind a module: ``layer`` or ``rms``, with gains of one, and a gate at first shut.

    The block is ``x + gate (norm(x) - x)`` with a gate of zeros, one trained number per feature: the function stays as it is, and the norm
    comes in as far as the gate opens. At a gate of one it is the norm alone. Moments begin at zero. ``Remove`` takes a norm out.
    """

    preserves: ClassVar[bool] = True
    owner: str
    kind: str = "layer"

    def change(self, draft: Draft) -> Rule:
        """Insert the norm."""
        if self.kind not in NORMS:
            raise RewriteError(f"{self.owner}: a norm is one of {', '.join(NORMS)}; got {self.kind!r}")
        old = find_module(draft.model, self.owner)
        try:
            made = draft.dimensions.find_output(self.owner).type
        except KeyError:
            raise RewriteError(f"{self.owner}: computes nothing, so no norm can be put behind it") from None
        if not made.shape or made.dtype != "float32":
            raise RewriteError(f"{self.owner}: makes {made}; a norm takes float32 features in the last axis")
        group = next((draft.find_group(path) for path in draft.parameters if path.startswith(f"{self.owner}.")), 0)
        block = GatedNorm(NORMS[self.kind](made.shape[-1]), made.shape[-1])
        path = insert_behind(draft.model, self.owner, old, block)
        for name, p in block.named_parameters():
            found = next(there for there, held in draft.parameters.items() if held is p)
            draft.train(found, group, {})
            draft.maps.append(Map(f"{path}.{name}"))
        return Remove(path)


@dataclass(frozen=True)
class SetPrecision(Rule):
    """Compute in ``float32``, ``bfloat16`` or ``float16`` from now on. Parameters and optimizer state are always fp32, and stay.

    In 16 bits products are of rounded operands, added up in fp32; norms, losses and updates are fp32. Results change by that rounding: the
    record's difference, found by value, says how much. In fp16 the loss is scaled; its scale goes through all rewrites, and waits where
    the precision is another one. Results that fp16 cannot hold are a refusal.
    """

    dtype: str

    def change(self, draft: Draft) -> Rule:
        """Change the compute dtype."""
        before = draft.amp or "float32"
        if self.dtype not in PRECISIONS or self.dtype == before:
            raise RewriteError(f"computes in {before}, to be replaced by another one of {', '.join(PRECISIONS)}; got {self.dtype!r}")
        wide = sorted(path for path, p in draft.parameters.items() if p.dtype != "float32")
        if wide:
            raise RewriteError(f"{wide[0]}: is {draft.parameters[wide[0]].dtype}; only fp32 parameters can be masters of another precision")
        draft.amp = None if self.dtype == "float32" else self.dtype
        return SetPrecision(before)
