"""The validator says where a value breaks a schema, in words that need no look at the schema."""

from __future__ import annotations

from typing import Any

import pytest

from contract.documents import DocumentError, parse_json
from contract.errors import BrokenDocument, FrozenError
from contract.schemas import find_schema_fault, load_document, read_document
from contract.validator import find_fault

SCHEMAS: dict[str, dict[str, Any]] = {
    "here": {"$id": "aicf:here", "$defs": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "count": {"type": "integer", "minimum": 1}}},
    "there": {"$id": "aicf:there", "$defs": {"flag": {"$ref": "#/$defs/yes"}, "yes": {"const": True}}},
}


def find(schema: dict[str, Any], value: Any) -> str:
    return find_fault(SCHEMAS.__getitem__, "here", schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"required": ["a", "b"]}, {"a": 1}, "'b' is a required property"),
        ({"properties": {"a": {"items": {"$ref": "#/$defs/count"}}}}, {"a": [1, 0]}, "a/1: 0 is less than the minimum of 1"),
        ({"properties": {"a": True}, "additionalProperties": False}, {"b": 1}, "b: is not allowed"),
        ({"propertyNames": {"$ref": "#/$defs/name"}}, {"../x": 1}, "'../x' does not match '^[a-z]+$'"),
        ({"$ref": "#/$defs/count"}, True, "True is not of type 'integer'"),
        ({"$ref": "#/$defs/count"}, float("nan"), "nan is not of type 'integer'"),
        ({"type": ["number", "null"]}, "x", "'x' is not of type 'number', 'null'"),
        ({"$ref": "aicf:there#/$defs/flag"}, 1, "1 is not True"),  # the other document's own references lead there
        ({"enum": [1, "a"]}, True, "True is not one of [1, 'a']"),
        ({"anyOf": [{"type": "null"}, {"minLength": 2}]}, "a", "'a' is not valid under any of the given schemas"),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": 1},
            "is valid under 2 of the given schemas",
        ),
        ({"minItems": 2}, [1], "[1] is too short, the least is 2"),
        ({"uniqueItems": True}, [[1], [1]], "has an item twice"),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "string"}}, [None, 3], "1: 3 is not of type 'string'"),
        ({"exclusiveMinimum": 0}, 0, "0 is less than or equal to the minimum of 0"),
    ],
)
def test_a_fault_names_place_value_and_rule(schema: dict[str, Any], value: Any, fault: str) -> None:
    assert fault in find(schema, value)
    assert len(find(schema, value)) < 200


@pytest.mark.parametrize("value", [{"a": [1, 2]}, {"a": [1.0]}, {}, [], "x", None])
def test_what_a_schema_does_not_speak_of_is_valid(value: Any) -> None:
    assert find({"properties": {"a": {"items": {"$ref": "#/$defs/count"}}}}, value) == ""


def test_a_long_value_is_shown_in_part() -> None:
    assert len(find({"type": "null"}, "x" * 10_000)) < 200


def test_every_document_says_of_what_format_it_is() -> None:
    for document in ("event", "evidence", "journal", "manifest", "tree", "index"):
        assert find_schema_fault(document, {"schema": 2}).startswith("schema: is of format 2, and this version reads format 1")
        assert find_schema_fault(document, ["schema"]) != ""


def test_a_broken_document_says_of_what_kind(tmp_path: Any) -> None:
    path = tmp_path / "tree.json"
    for content, kind, words in ((None, "missing", "is not there"), (b"{", "unreadable", "is not JSON"), (b"{}", "schema", "required")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BrokenDocument, match=words) as caught:
            read_document("tree", path, "it is asked for")
        assert (caught.value.kind, caught.value.path) == (kind, path)
        assert str(caught.value).startswith(f"{path}: ") and isinstance(caught.value, FrozenError)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrokenDocument, match=r"cannot be read: .*; it is asked for"):
        load_document(path, "it is asked for")


def test_a_key_given_twice_is_no_document() -> None:
    with pytest.raises(DocumentError, match="'a' is given twice"):
        parse_json('{"a": 1, "a": 2}')


@pytest.mark.parametrize("content", ["[" * 201 + "]" * 201, '{"a": [' * 101 + "1" + "]}" * 101])
def test_what_is_nested_beyond_the_limit_is_refused_by_every_python(content: str) -> None:
    with pytest.raises(DocumentError, match="is nested too deeply, in more than 200 levels"):
        parse_json(content)
    assert parse_json("[" * 200 + "]" * 200) and parse_json("[[1, 2], " * 150 + "{}" + "]" * 150)
