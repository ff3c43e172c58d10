"""Conditions of the frozen set, as functions of a call and in words; ``docs/frozen.md`` says what each means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from contract.errors import FrozenError

INT64_MAX = 2**63 - 1


class Call(Protocol):
    """What conditions look at: sizes and attributes by name, and of the tensors that are present the row strides and addresses."""

    @property
    def by_size(self) -> Mapping[str, int]:
        """The sizes."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes, all of them."""
        ...

    @property
    def strides(self) -> Mapping[str, int | tuple[int, ...]]:
        """Row strides in elements, of the tensors that have one; of each dimension, where these have their own."""
        ...

    @property
    def addresses(self) -> Mapping[str, int]:
        """Addresses in bytes; none where they are not known, and count as aligned."""
        ...


Condition = Callable[[Call], bool]


def count_blocks(steps: Mapping[str, int]) -> Callable[[Mapping[str, int]], int]:
    """Return the product of sizes over steps, each rounded up; products stay at the largest 64-bit number, which is beyond every limit."""
    if len(steps) == 1:
        ((name, step),) = steps.items()
        return lambda sizes: -(-sizes[name] // step)
    pairs = tuple(steps.items())

    def count(sizes: Mapping[str, int]) -> int:
        product = 1
        for name, step in pairs:
            product *= -(-sizes[name] // step)
        return min(product, INT64_MAX)

    return count


def make_condition(row: Mapping[str, Any]) -> Condition:
    """Return a condition as a function; raises :class:`FrozenError` for one that this version does not know."""
    if "attribute" in row:
        name, values = row["attribute"], frozenset(row["in"])
        return lambda q: q.attributes[name] in values
    if "count" in row:
        return _make_count(count_blocks(row["count"]), row.get("min", 1), row.get("max", INT64_MAX), row.get("multiple", 1))
    if "tensor" in row:
        return _make_rows(row["tensor"], row.get("address", 1), row.get("stride", 1), row.get("max_stride", INT64_MAX))
    raise FrozenError(f"condition {dict(row)}: has none of attribute, count and tensor")


def _make_count(count: Callable[[Mapping[str, int]], int], least: int, most: int, multiple: int) -> Condition:
    if least == 1 and multiple == 1:
        return lambda q: count(q.by_size) <= most

    def holds(q: Call) -> bool:
        found = count(q.by_size)
        return least <= found <= most and found % multiple == 0

    return holds


def _make_rows(tensor: str, address: int, multiple: int, most: int) -> Condition:
    def holds(q: Call) -> bool:
        if q.addresses and q.addresses.get(tensor, 0) % address:
            return False
        given = q.strides.get(tensor, ())
        strides = (given,) if isinstance(given, int) else given[:-1]
        return all(stride % multiple == 0 and stride <= most for stride in strides)

    return holds


def describe(row: Mapping[str, Any]) -> str:
    """Return what a condition asks for, in words."""
    if "attribute" in row:
        values = ", ".join(map(str, row["in"]))
        return f"{row['attribute']} must be {'one of ' if len(row['in']) > 1 else ''}{values}"
    if "count" in row:
        what = " x ".join(name if step == 1 else f"ceil({name}/{step})" for name, step in row["count"].items())
        asked = [
            f"{word} {row[key]}" for key, word in (("min", "at least"), ("max", "at most"), ("multiple", "a multiple of")) if key in row
        ]
        return f"{what} must be {' and '.join(asked) or 'any number'}"
    asked = [f"its address a multiple of {row['address']} bytes"] if "address" in row else []
    asked += [f"its row stride a multiple of {row['stride']} elements"] if "stride" in row else []
    asked += [f"its row stride at most {row['max_stride']} elements"] if "max_stride" in row else []
    return f"{row['tensor']}: {' and '.join(asked) or 'anything'}"


def list_address_steps(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return what conditions ask addresses to be multiples of."""
    # A document may write 2.0, which is an integer to its schema.
    return [int(row["address"]) for row in rows if "address" in row]
