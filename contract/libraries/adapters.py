"""Which calls of an op a library may serve, and how the op's C struct must look for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from contract.conditions import make_condition

Row = Mapping[str, Any]
CUBLASLT = "cublaslt"
# A library is taken where it saves at least this share of a kernel's time: less is within what two measurements differ by.
MARGIN = 0.02


@dataclass(frozen=True)
class _Call:
    """A call whose strides and addresses no condition minds."""

    by_size: Mapping[str, int]
    attributes: Mapping[str, Any]
    strides: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Adapter:
    """What a library's binding does for an op.

    ``fields`` are the first fields of the op's C struct with their types, ``codes`` what its attributes' choices are there: the binding is
    compiled for these. ``domain`` are conditions on a call, in the language of the frozen set; ``alignment_bytes`` is by tensor. Results
    are of one kind where the attribute ``kind`` is the same: they are judged by it, and calls get the kinds that are right.
    """

    library: str
    op: str
    fields: tuple[tuple[str, str], ...]
    codes: Mapping[str, Mapping[str, int]]
    domain: tuple[Row, ...]
    alignment_bytes: Mapping[str, int]
    kind: str

    def serves(self, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> bool:
        """Return whether a call of these sizes and attributes is in the domain, rows following each other and addresses being aligned."""
        call = _Call(sizes, attributes)
        return all(make_condition(condition)(call) for condition in self.domain)

    def restrict(self, kinds: Collection[str]) -> list[dict[str, Any]]:
        """Return the domain with these kinds of results alone."""
        return [
            {"attribute": self.kind, "in": [k for k in c["in"] if k in kinds]} if c.get("attribute") == self.kind else dict(c)
            for c in self.domain
        ]

    def find_fault(self, interface: Row) -> str:
        """Return why the binding cannot take the structs of an interface, "" where it can."""
        given = tuple((f["name"], f["type"]) for f in interface["fields"])
        if given[: len(self.fields)] != self.fields:
            return f"the binding of {self.library} is for structs that begin with {', '.join(name for name, _ in self.fields)}"
        attributes = {a["name"]: a for a in interface["attributes"]}
        for name, codes in self.codes.items():
            attribute = attributes.get(name, {"choices": [], "codes": []})
            found = dict(zip(attribute["choices"], attribute["codes"], strict=True))
            if any(found.get(choice) != code for choice, code in codes.items()):
                return f"the binding of {self.library} takes {name} as {', '.join(f'{c} = {n}' for c, n in codes.items())}"
        return ""


_POINTERS = tuple((name, "pointer") for name in ("a", "b", "bias", "y", "z"))
_NUMBERS = tuple((name, "int64") for name in ("m", "n", "k", "lda", "ldb", "ldy", "ldz"))
_CODES = tuple((name, "int32") for name in ("act", "dtype", "b_layout", "precision"))
# What the library's heuristic assumes of addresses unless it is told otherwise, and so what was measured. Rows begin at multiples of 16
# bytes: where they do not, the library takes kernels whose epilogue is a pass of its own, and rounds once more.
_ALIGNED = tuple({"tensor": name, "address": 256, "stride": 8} for name in ("a", "b", "y"))

ADAPTERS: Mapping[tuple[str, str], Adapter] = MappingProxyType(
    {
        (CUBLASLT, "gemm_bias_act"): Adapter(
            CUBLASLT,
            "gemm_bias_act",
            (*_POINTERS, *_NUMBERS, *_CODES),
            {"act": {"none": 0, "relu": 1, "gelu_tanh": 2}, "dtype": {"bfloat16": 1, "float16": 2}, "b_layout": {"kn": 0, "nk": 1}},
            (
                {"attribute": "act", "in": ["none", "relu", "gelu_tanh"]},
                {"attribute": "dtype", "in": ["bfloat16", "float16"]},
                {"attribute": "save_z", "in": [False]},
                {"attribute": "with_residual", "in": [False]},
                {"count": {"N": 1}, "multiple": 8},
                {"count": {"K": 1}, "multiple": 8},
                *_ALIGNED,
                {"tensor": "bias", "address": 16},
            ),
            {"a": 256, "b": 256, "y": 256, "bias": 16},
            kind="act",
        ),
    }
)


def find_adapter(library: str, op: str) -> Adapter | None:
    """Return what a library's binding does for an op; None where it has none."""
    return ADAPTERS.get((library, op))


def describe_version(version: int) -> str:
    """Return cuBLASLt's number of a version in words: 130002 is 13.0.2."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
