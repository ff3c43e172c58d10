"""Growth of an op's C interface: which calls are also calls of an earlier interface, so that kernels sealed with that one serve them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from contract.calls import find_row
from contract.layout import hash_value

Row = Mapping[str, Any]
_SAME = ("include", "struct", "sizes", "scalars", "derived")


def find_earlier_calls(earlier: Row, present: Row) -> list[dict[str, Any]] | None:
    """Return the conditions under which a call by the ``present`` interface is one by the ``earlier``; None where it is not an extension.

    An extension adds fields behind all others, attributes, choices of attributes, and tensors that calls without these do not have. In all
    else, and for every call that the earlier one knows, both must agree.
    """
    fields = list(earlier["fields"])
    if any(earlier.get(key) != present.get(key) for key in _SAME) or list(present["fields"][: len(fields)]) != fields:
        return None
    attributes = {a["name"]: a for a in present["attributes"]}
    conditions: list[dict[str, Any]] = []
    for old in earlier["attributes"]:
        new = attributes.pop(old["name"], None)
        if new is None or not _keeps(old, new):
            return None
        if len(new["choices"]) > len(old["choices"]):
            conditions.append({"attribute": old["name"], "in": list(old["choices"])})
    conditions += [{"attribute": name, "in": [added["default"]]} for name, added in attributes.items()]
    defaults = {name: added["default"] for name, added in attributes.items()}
    return conditions if _has_same_tensors(earlier, present, defaults) else None


def list_served_interfaces(description: Row) -> dict[str, list[Any]]:
    """Return the interfaces, by hash, whose kernels an index may name, each with the conditions under which these serve a call."""
    served = {row["interface"]: list(row["when"]) for row in description.get("extends", ())}
    return served | {hash_value(description["interface"]): []}


def extend_description(earlier: Row | None, interface: Row) -> list[dict[str, Any]]:
    """Return the ``extends`` of a description with this interface, which is the ``earlier`` description's or extends it."""
    if earlier is None:
        return []
    kept: list[dict[str, Any]] = [dict(row) for row in earlier.get("extends", ())]
    conditions = find_earlier_calls(earlier["interface"], interface)
    if hash_value(earlier["interface"]) == hash_value(interface) or conditions is None:
        return kept
    older = [row | {"when": [*row["when"], *(c for c in conditions if c not in row["when"])]} for row in kept]
    return [*older, {"interface": hash_value(earlier["interface"]), "when": conditions}]


def fill_attributes(attributes: Row, interface: Row) -> dict[str, Any]:
    """Return a call's attributes with those that an interface has beside them, at their defaults."""
    return {a["name"]: attributes.get(a["name"], a["default"]) for a in interface["attributes"]}


def _keeps(old: Row, new: Row) -> bool:
    """Return whether an attribute's choices are still there and mean what they meant."""
    if any(old.get(key) != new.get(key) for key in ("default", "field", "present")):
        return False
    codes = dict(zip(map(repr, new["choices"]), new.get("codes", new["choices"]), strict=True))
    given = zip(map(repr, old["choices"]), old.get("codes", old["choices"]), strict=True)
    return all(choice in codes and codes[choice] == code for choice, code in given)


def _has_same_tensors(earlier: Row, present: Row, defaults: Row) -> bool:
    tensors = {t["name"]: t for t in present["tensors"]}
    calls = [call | dict(defaults) for call in _list_calls(earlier)]
    for old in earlier["tensors"]:
        new = tensors.pop(old["name"], None)
        if new is None or any(old.get(key) != new.get(key) for key in ("role", "field", "stride", "strides")):
            return False
        if any(find_row(old[key], call) != find_row(new[key], call) for key in ("dtype", "shape", "present") for call in calls):
            return False
    return not any(find_row(added["present"], call) for added in tensors.values() for call in calls)


def _list_calls(interface: Row) -> Iterator[dict[str, Any]]:
    names = [a["name"] for a in interface["attributes"]]
    for values in product(*(a["choices"] for a in interface["attributes"])):
        yield dict(zip(names, values, strict=True))
