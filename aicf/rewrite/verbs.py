"""Rewrites by name: each makes a rule and applies it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aicf.errors import RewriteError
from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.rules import (
    Deepen,
    Freeze,
    InsertNorm,
    Merge,
    Prune,
    Release,
    Remove,
    ReplaceActivation,
    Rule,
    Separate,
    SetBatch,
    SetPrecision,
    Split,
    Thaw,
    Together,
    Widen,
    read_rule,
)


class Verbs(ABC):
    """Someone who applies rules."""

    @abstractmethod
    def apply(self, rule: Rule, evidence: Mapping[str, Any] | None = None) -> RewriteRecord:
        """Rewrite the network by a rule, and return what was done."""

    def widen(self, owner: str | Sequence[str], to: int, *, seed: int = 0, heads: bool = False) -> RewriteRecord:
        """Have ``to`` units, or heads, in the place of those that ``owner`` makes, or each of several (:class:`~aicf.rewrite.Widen`)."""
        if not isinstance(owner, str):
            return self.apply(Together(tuple(Widen(each, to, seed, heads) for each in owner)))
        return self.apply(Widen(owner, to, seed, heads))

    def prune(self, owner: str, units: Iterable[int], *, heads: bool = False) -> RewriteRecord:
        """Remove units, or heads, by their numbers (:class:`~aicf.rewrite.Prune`)."""
        return self.apply(Prune(owner, tuple(int(i) for i in units), heads))

    def separate(self, owner: str, deviation: float = 0.1, *, seed: int = 0, heads: bool = False) -> RewriteRecord:
        """Make copies of units, or of heads, different from each other (:class:`~aicf.rewrite.Separate`)."""
        return self.apply(Separate(owner, deviation, seed, heads))

    def release(self, owner: str, *, heads: bool = False) -> RewriteRecord:
        """Train units at the full rate again, whatever they were copied from (:class:`~aicf.rewrite.Release`)."""
        return self.apply(Release(owner, heads))

    def deepen(self, owner: str, kind: str = "residual", *, activation: str = "relu", hidden: int = 0, seed: int = 0) -> RewriteRecord:
        """Put a block behind a module that computes nothing at first (:class:`~aicf.rewrite.Deepen`)."""
        return self.apply(Deepen(owner, kind, activation, hidden, seed))

    def remove(self, owner: str) -> RewriteRecord:
        """Remove a block (:class:`~aicf.rewrite.Remove`)."""
        return self.apply(Remove(owner))

    def replace_activation(self, owner: str, to: str) -> RewriteRecord:
        """Have another activation in the place of one (:class:`~aicf.rewrite.ReplaceActivation`)."""
        return self.apply(ReplaceActivation(owner, to))

    def freeze(self, owner: str) -> RewriteRecord:
        """No longer train a module's parameters, or one (:class:`~aicf.rewrite.Freeze`)."""
        return self.apply(Freeze(owner))

    def thaw(self, owner: str) -> RewriteRecord:
        """Train frozen parameters again (:class:`~aicf.rewrite.Thaw`)."""
        return self.apply(Thaw(owner))

    def split(self, owner: str, rank: int) -> RewriteRecord:
        """Have two linear layers of low rank in the place of one (:class:`~aicf.rewrite.Split`)."""
        return self.apply(Split(owner, rank))

    def merge(self, owner: str) -> RewriteRecord:
        """Have one linear layer in the place of two (:class:`~aicf.rewrite.Merge`)."""
        return self.apply(Merge(owner))

    def set_batch(self, rows: int) -> RewriteRecord:
        """Train on batches of another number of rows (:class:`~aicf.rewrite.SetBatch`)."""
        return self.apply(SetBatch(rows))

    def insert_norm(self, owner: str, kind: str = "layer") -> RewriteRecord:
        """Put a gated norm behind a module (:class:`~aicf.rewrite.InsertNorm`)."""
        return self.apply(InsertNorm(owner, kind))

    def set_precision(self, dtype: str) -> RewriteRecord:
        """Compute in another dtype (:class:`~aicf.rewrite.SetPrecision`)."""
        return self.apply(SetPrecision(dtype))

    def undo(self, record: RewriteRecord) -> RewriteRecord:
        """Apply the rule that takes a rewrite back; raises :class:`~aicf.errors.RewriteError` where there is none."""
        if record.undo is None:
            raise RewriteError(f"{record.rule['rule']}: cannot be undone; roll back to a snapshot taken before it")
        return self.apply(read_rule(record.undo))
