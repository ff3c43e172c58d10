"""An op's C interface, cost and axes as data, so that readers of the frozen set need neither ``op.py`` nor a C compiler.

What depends on attributes becomes a table of rows ``{"when": {attribute: value}, "value": ...}`` over those attributes alone that it
depends on: exactly one row fits a problem.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.build.generate import generate_sources
from harness.discover import LoadedOp
from harness.errors import FrozenError
from harness.spec import Attribute, Op, Scalar, Tensor
from harness.spec.conditions import AttributeValue
from harness.spec.interface import Interface
from harness.spec.tables import find_presence, list_sizes, tabulate

_STRUCT = re.compile(r"typedef\s+struct\s+(\w+Params)\s*\{(.*?)\}\s*\1\s*;", re.DOTALL)
_FIELD = re.compile(r"(?:const\s+)?(?P<type>\w+)\s*(?P<pointer>\*?)\s*(?P<names>\w+(?:\s*,\s*\w+)*)\Z")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_NAMES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+AICF_(\w+)_NAMES[ \t]+\{([^}]*)\}", re.MULTILINE)
_SCALARS = {"int64_t": "int64", "int32_t": "int32", "float": "float32", "double": "float64"}


def read_api(loaded: LoadedOp) -> str:
    """Return the text of the op's ``api.hpp`` behind the texts of all that it includes of the project."""
    texts: dict[Path, str] = {}
    generated = {loaded.include_dir / name: text for name, text in generate_sources(loaded).items()}

    def read(path: Path) -> None:
        if path not in texts and (path in generated or path.is_file()):
            texts[path] = ""
            text = generated[path] if path in generated else path.read_text()
            for name in _INCLUDE.findall(text):
                read(loaded.include_dir / name)
            del texts[path]  # put behind what it includes
            texts[path] = text

    read(loaded.folder / "api.hpp")
    return "\n".join(texts.values())


def describe_interface(op: Op, api: str) -> dict[str, Any]:
    """Return the op's Params struct and how sizes, attributes and tensors are found in it, from ``op.py`` and :func:`read_api`.

    Names agree by rule: a size's field is its name in lower case, a tensor's its own, its row stride's ``ld<name>``; an attribute has a
    field of its own, or is the presence of an optional tensor. What a field holds for a name is its place in the header's
    ``AICF_<FIELD>_NAMES``, or of the op's own enumerators where its interface is generated. What an op does not have (scalars, strides of
    single dimensions, derived sizes) has no key. Raises :class:`FrozenError` where they do not agree.
    """
    struct, fields = read_struct(op.name, api)
    names = {f["name"] for f in fields}
    for wanted in [*(s.lower() for s in list_sizes(op)), *(t.name for t in op.tensors)]:
        if wanted not in names:
            raise FrozenError(f"{op.name}/api.hpp: {struct} has no field {wanted}, which the op's description asks for")
    described: dict[str, Any] = {
        "include": f"{op.name}/api.hpp",
        "struct": struct,
        "fields": fields,
        "sizes": {s: s.lower() for s in list_sizes(op)},
        "attributes": [_describe_attribute(op, a, names, api) for a in op.attributes],
        "tensors": [_describe_tensor(op, t, names) for t in op.tensors],
    }
    if op.scalars:
        described["scalars"] = [_describe_scalar(s) for s in op.scalars]
    if op.derived:
        described["derived"] = [{"name": d.name, "formula": d.formula} for d in op.derived]
    return described


def _describe_scalar(scalar: Scalar) -> dict[str, Any]:
    row = {"name": scalar.name, "field": scalar.name, "type": scalar.dtype, "default": scalar.default}
    return row | ({"choices": list(scalar.choices)} if scalar.choices else {"low": scalar.low, "high": scalar.high})


def read_struct(name: str, api: str) -> tuple[str, list[dict[str, str]]]:
    """Return the name and the fields, in order, of the struct in ``api.hpp``; types are ``pointer`` and those of scalars."""
    found = _STRUCT.search(re.sub(r"/\*.*?\*/|//[^\n]*", "", api, flags=re.DOTALL))
    if found is None:
        raise FrozenError(f"{name}/api.hpp has no `typedef struct ...Params {{ ... }} ...Params;`")
    fields = []
    for text in filter(None, (" ".join(part.split()) for part in found[2].split(";"))):
        match = _FIELD.match(text)
        is_known = match is not None and (match["type"] in _SCALARS if "," in match["names"] or not match["pointer"] else True)
        if match is None or not is_known:
            known = ", ".join(_SCALARS)
            raise FrozenError(f"{name}/api.hpp: field `{text}` of {found[1]} is not understood: a pointer, or one of {known}, one a line")
        kind = "pointer" if match["pointer"] else _SCALARS[match["type"]]
        fields += [{"name": name.strip(), "type": kind} for name in match["names"].split(",")]
    return found[1], fields


def _describe_attribute(op: Op, attribute: Attribute, fields: set[str], api: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": attribute.name, "choices": list(attribute.choices), "default": attribute.default}
    if attribute.name in fields:
        return row | {"field": attribute.name, "codes": [_find_code(op, attribute, c, api) for c in attribute.choices]}
    if tensor := find_presence(op, attribute):
        return row | {"present": tensor.name}
    raise FrozenError(f"op {op.name}: attribute {attribute.name} is neither a field of the struct nor the presence of an optional tensor")


def _find_code(op: Op, attribute: Attribute, choice: AttributeValue, api: str) -> int | float:
    """Return what the field holds for a choice: numbers and switches as they are, a name as its place in the header's list of names."""
    if not isinstance(choice, str):
        return choice if isinstance(choice, float) else int(choice)
    if f"AICF_OPS_{op.name.upper()}_PARAMS_H_" in api:
        return Interface(op).find_code(attribute, choice)
    lists = {field.lower(): re.findall(r'"([^"]*)"', names) for field, names in _NAMES.findall(api)}
    names = lists.get(attribute.name, [])
    if choice not in names:
        raise FrozenError(f"{op.name}/api.hpp: no AICF_{attribute.name.upper()}_NAMES with {choice!r}: what does the field hold for it?")
    return names.index(choice)


def _describe_tensor(op: Op, tensor: Tensor, fields: set[str]) -> dict[str, Any]:
    stride = f"ld{tensor.name}"
    own = {"strides": Interface(op).list_strides(tensor)} if tensor.is_strided else {}
    return {
        "name": tensor.name,
        "role": tensor.role.value,
        "field": tensor.name,
        "stride": stride if stride in fields else None,
        "dtype": tabulate(op, tensor.resolve_dtype),
        "shape": tabulate(op, lambda p: list(tensor.name_sizes(p))),
        "present": tabulate(op, tensor.present),
        **own,
    }
