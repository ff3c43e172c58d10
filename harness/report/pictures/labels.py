"""Short names for long ones: whatever all names of a set share is left out, as long as no two become the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_SIZE = re.compile(r"([A-Za-z]+)(\d+)")
_SHORT_VALUES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def shorten_problems(names: Iterable[str]) -> dict[str, str]:
    """Return a label per problem name: its sizes, and those attributes in which the problems differ (``4096×4096×4096 gelu_tanh``)."""
    listed = list(dict.fromkeys(names))
    parts = {name: name.split("-") for name in listed}
    everywhere = set.intersection(*(set(p[1:]) for p in parts.values())) if listed else set()
    everywhere |= {a for p in parts.values() for a in p[1:] if a.endswith("=none")}  # an attribute that does nothing
    labels = {
        name: " ".join([_join_sizes(p[0]), *(_shorten_attribute(a) for a in p[1:] if a not in everywhere)]) for name, p in parts.items()
    }
    return labels if len(set(labels.values())) == len(listed) else {name: name for name in listed}


def name_sizes(problem: str) -> str:
    """Return what the numbers of a label stand for: ``M×N×K``."""
    return "×".join(name for name, _ in _SIZE.findall(problem.split("-")[0]))


def _join_sizes(text: str) -> str:
    found = _SIZE.findall(text)
    return "×".join(number for _, number in found) if found else text


def _shorten_attribute(text: str) -> str:
    value = text.partition("=")[2] or text
    return _SHORT_VALUES.get(value, value)


def shorten_variants(names: Iterable[str]) -> dict[str, str]:
    """Return a label per variant: the kernel, and the fewest tunables, in their order, that tell its variants apart."""
    by_kernel: dict[str, dict[str, dict[str, str]]] = {}
    for name in dict.fromkeys(names):
        kernel, _, bound = name.partition("/")
        by_kernel.setdefault(kernel, {})[name] = dict(re.findall(r"([a-z]+)(\d+)", bound))
    labels: dict[str, str] = {}
    for kernel, variants in by_kernel.items():
        kept = _find_telling(list(variants.values()))
        for name, values in variants.items():
            labels[name] = " ".join([kernel, *(f"{k}{values[k]}" for k in kept if k in values)])
    return labels


def _find_telling(variants: Sequence[Mapping[str, str]]) -> list[str]:
    """Return tunables by which all differ, few of them: each one is taken that tells the most apart of what is still alike."""
    order = list(dict.fromkeys(k for v in variants for k in v))
    kept: list[str] = []

    def count(keys: Sequence[str]) -> int:
        return len({tuple(v.get(k) for k in keys) for v in variants})

    while count(kept) < count(order):
        kept.append(max((k for k in order if k not in kept), key=lambda k: count([*kept, k])))
    return [k for k in order if k in kept]
