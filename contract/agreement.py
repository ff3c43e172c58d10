"""Whether the rows of an index agree: each row may use only names that another declares. Schemas see one row at a time."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contract.axes import Axes
from contract.errors import FrozenError
from contract.formulas import check_tokens, list_tokens

Row = Mapping[str, Any]


class _Names:
    """What an op's description declares; ``require`` raises :class:`FrozenError` for a name that it does not."""

    def __init__(self, where: str, description: Row) -> None:
        self._where = where
        interface = description["interface"]
        self.sizes = set(interface["sizes"])
        self.fields = {f["name"] for f in interface["fields"]}
        self.tensors = {t["name"] for t in interface["tensors"]}
        self.attributes = {a["name"]: a["choices"] for a in interface["attributes"]}

    def fail(self, text: str) -> None:
        raise FrozenError(f"{self._where}: {text}")

    def require(self, what: str, names: Iterable[str], known: Iterable[str]) -> None:
        strangers = sorted(set(names) - set(known))
        if strangers:
            self.fail(f"{what}: {strangers[0]} is not one of {', '.join(sorted(known)) or 'none'}")

    def require_once(self, what: str, names: Sequence[str]) -> None:
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            self.fail(f"{what}: {twice[0]} is given twice")

    def require_values(self, what: str, values: Mapping[str, Any]) -> None:
        self.require(what, values, self.attributes)
        for name, value in values.items():
            if not _is_choice(value, self.attributes[name]):
                self.fail(f"{what}: {name} = {value!r} is not one of {', '.join(map(repr, self.attributes[name]))}")

    def require_group(self, what: str, group: str, count: int) -> None:
        if group.count("/") + 1 != max(count, 1):
            self.fail(f"{what}: group {group} is not a class of each of the {count} axes that it is of")

    def require_conditions(self, what: str, conditions: Sequence[Row]) -> None:
        for row in conditions:
            if "attribute" in row:
                for value in row["in"]:
                    self.require_values(what, {row["attribute"]: value})
            elif "count" in row:
                self.require(what, row["count"], self.sizes)
            else:
                self.require(what, [row["tensor"]], self.tensors)

    def require_table(self, what: str, table: Sequence[Row]) -> None:
        for row in table:
            self.require_values(what, row["when"])

    def require_formulas(self, what: str, table: Sequence[Row]) -> None:
        for row in table:
            try:
                check_tokens(list_tokens(row["value"]), sorted(self.sizes))
            except FrozenError as error:
                self.fail(f"{what}: {error}")


def check_agreement(where: str, rows: Sequence[Row], manifests: Sequence[Row]) -> None:
    """Raise :class:`FrozenError`, naming the field, where rows of an index or manifests use names that the op does not declare."""
    description = next(row for row in rows if row["kind"] == "op")
    names = _Names(where, description)
    _check_interface(names, description["interface"])
    _check_description(names, description)
    for row in description.get("extends", ()):
        names.require_conditions("extends", row["when"])
    axes = Axes.of(description["axes"])
    for row in rows:
        if row["kind"] == "entry" and set(row["bucket"]) != {"arch", *axes.names}:
            names.fail(f"entry {row['kernel']}: its bucket has {', '.join(sorted(row['bucket']))}, not arch, {', '.join(axes.names)}")
        if row["kind"] == "median":
            what = f"median {row['problem']}"
            names.require_group(what, row["group"], axes.num_group)
            if set(row["sizes"]) != names.sizes or set(row["attributes"]) != set(names.attributes):
                names.fail(f"{what}: its sizes and attributes are not the op's")
            names.require_values(what, row["attributes"])
        if row["kind"] == "library":
            _check_library(names, row)
        if row["kind"] == "survey":
            for bucket in row.get("apart", ()):
                names.require_group(f"survey {row['arch']}: apart", bucket, len(axes.names))
            for kernel, shape in row.get("shapes", {}).items():
                names.require(f"survey {row['arch']}: shapes/{kernel}", shape["tile"], names.sizes)
                names.require(f"survey {row['arch']}: shapes/{kernel}: least", shape.get("least", ()), shape["tile"])
            for group in row["groups"]:
                names.require_group(f"survey {row['arch']}", group["group"], axes.num_survey)
    for manifest in manifests:
        names.require_conditions(f"{manifest['kernel']}: domain", manifest["domain"])
        names.require(f"{manifest['kernel']}: prior/tile", manifest["prior"]["tile"], names.sizes)
        names.require(f"{manifest['kernel']}: alignment_bytes", manifest["alignment_bytes"], names.tensors)


def _check_library(names: _Names, row: Row) -> None:
    what = f"library {row['library']}"
    names.require_conditions(f"{what}: domain", row["domain"])
    names.require(f"{what}: alignment_bytes", row["alignment_bytes"], names.tensors)
    for point in row["points"]:
        where = f"{what}: point {point['problem']}"
        names.require(where, point["sizes"], names.sizes)
        names.require(where, names.sizes, point["sizes"])
        names.require_values(where, point["attributes"])


def _check_interface(names: _Names, interface: Row) -> None:
    tensors, attributes = interface["tensors"], interface["attributes"]
    names.require_once("interface/fields", [f["name"] for f in interface["fields"]])
    given = [row["name"] for row in (*tensors, *attributes, *interface.get("scalars", ()))]
    names.require_once("interface", given)
    if reserved := [n for n in [*names.tensors, *names.attributes] if keyword.iskeyword(n)]:
        names.fail(f"interface: {reserved[0]} is a keyword of Python, and names an argument")
    kinds = {f["name"]: f["type"] for f in interface["fields"]}
    names.require("interface/sizes", interface["sizes"].values(), names.fields)
    for tensor in tensors:
        what = f"interface/tensors/{tensor['name']}"
        strides = list(filter(None, [tensor["stride"], *tensor.get("strides", ())]))
        names.require(what, [tensor["field"], *strides], names.fields)
        if kinds[tensor["field"]] != "pointer":
            names.fail(f"{what}: field {tensor['field']} is not a pointer")
        for key in ("dtype", "shape", "present"):
            names.require_table(f"{what}/{key}", tensor[key])
        names.require(f"{what}/shape", (size for row in tensor["shape"] for size in row["value"] if isinstance(size, str)), names.sizes)
        if "strides" in tensor and any(len(row["value"]) > len(tensor["strides"]) for row in tensor["shape"]):
            names.fail(f"{what}: has more dimensions than strides")
    for attribute in attributes:
        what = f"interface/attributes/{attribute['name']}"
        if not _is_choice(attribute["default"], attribute["choices"]):
            names.fail(f"{what}: the default {attribute['default']!r} is not one of its choices")
        if "present" in attribute:
            names.require(what, [attribute["present"]], names.tensors)
            if sorted(attribute["choices"], key=repr) != [False, True]:
                names.fail(f"{what}: its choices must be false and true, whether a tensor is there")
        else:
            names.require(what, [attribute["field"]], names.fields)
            if len(attribute["codes"]) != len(attribute["choices"]):
                names.fail(f"{what}: has {len(attribute['choices'])} choices and {len(attribute['codes'])} codes")
    scalars = interface.get("scalars", ())
    names.require("interface/scalars", [s["field"] for s in scalars], names.fields)
    for scalar in scalars:
        if kinds[scalar["field"]] != scalar["type"]:
            names.fail(f"interface/scalars/{scalar['name']}: field {scalar['field']} is {kinds[scalar['field']]}, not {scalar['type']}")
    names.require("interface/derived", [d["name"] for d in interface.get("derived", ())], names.sizes)
    numbers = [*interface["sizes"].values(), *filter(None, (s for t in tensors for s in (t["stride"], *t.get("strides", ()))))]
    numbers += [a["field"] for a in attributes if "field" in a]
    if pointers := [n for n in numbers if kinds[n] == "pointer"]:
        names.fail(f"interface/fields: {pointers[0]} is a pointer, and holds a number")


def _check_description(names: _Names, description: Row) -> None:
    names.require_once("axes", [axis["name"] for axis in description["axes"]])
    try:
        Axes.of(description["axes"])
    except FrozenError as error:
        names.fail(f"axes: {error}")
    for axis in description["axes"]:
        names.require_once(f"axes/{axis['name']}", [c["name"] for c in axis["classes"]])
        for each in axis["classes"]:
            names.require_conditions(f"axes/{axis['name']}/{each['name']}", each["when"])
    for tie in description.get("ties", ()):
        names.require_conditions("ties", tie["when"])
        names.require_values("ties", tie["then"])
        names.require("ties", (size for pair in tie["equal"] for size in pair), names.sizes)
        if strange := [row for row in tie["when"] if "attribute" not in row]:
            names.fail(f"ties: {dict(strange[0])} is not a condition on an attribute")
    for key, table in (description["cost"] or {}).items():
        if key == "l2_bytes_per_s":
            continue
        names.require_table(f"cost/{key}", table)
        if key != "flop_unit":
            names.require_formulas(f"cost/{key}", table)


def _is_choice(value: Any, choices: Sequence[Any]) -> bool:
    """Return whether a value is one of the choices: 1 is not true, and 1.0 is 1."""
    return any(c == value and isinstance(c, bool) == isinstance(value, bool) for c in choices)
