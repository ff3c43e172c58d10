"""Whatever stands in a document of the frozen set: a reader returns a value or its own error, and touches nothing outside the set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry as Schemas
from referencing import Resource

from aicf import errors as aicf_errors
from aicf.ops.arguments import Signature
from aicf.ops.functions import write_function
from aicf.registry import HwCaps, Problem, Registry
from contract.conditions import list_address_steps
from contract.documents import DocumentError, parse_json
from contract.frozen_set import FrozenOp, read_op
from contract.kernels import read_kernel
from contract.layout import (
    INDEX,
    JOURNAL,
    SCHEMA,
    TREE,
    dump_line,
    expand,
    find_frozen_dir,
    hash_bytes,
    hash_value,
    make_seal,
    name_manifest,
)
from contract.schemas import load_schema
from contract.validator import find_fault
from deploy.__main__ import list_kernels
from deploy.dispatch import make_dispatcher
from deploy.selection import select
from harness.errors import FrozenError, RecordError
from harness.freezing.store.history import read_history
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.transaction import recover
from harness.freezing.store.verify import check_op
from harness.records.database import Records
from harness.records.interchange import import_records
from tests.freezing import frozen_sets
from tests.freezing.frozen_sets import OP, REVISION, make_tensor_row, write_frozen_set
from tests.freezing.mutations import BROKEN_BYTES, PRECIOUS, Watch, break_document, mutate_value

KERNEL = "plain__threads32__00000001"
MANIFEST, TREE_FILE = name_manifest(KERNEL), f"{REVISION}/{TREE}"
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

INTERFACE: dict[str, Any] = {
    "include": "tiny/api.hpp",
    "struct": "TinyParams",
    "fields": [{"name": n, "type": "pointer"} for n in ("x", "y", "z")]
    + [{"name": n, "type": "int64"} for n in ("n", "k", "ldx")]
    + [{"name": "act", "type": "int32"}],
    "sizes": {"n": "n", "k": "k"},
    "attributes": [
        {"name": "act", "choices": ["none", "relu"], "codes": [0, 1], "default": "none", "field": "act"},
        {"name": "save", "choices": [False, True], "default": False, "present": "z"},
    ],
    "tensors": [
        make_tensor_row("x", "input", ["n", "k"], "ldx"),
        make_tensor_row("y", "output", ["n", "k"]),
        make_tensor_row("z", "output", ["n"])
        | {"present": [{"when": {"save": False}, "value": False}, {"when": {"save": True}, "value": True}]},
    ],
}
_SUM = [{"when": {"act": a}, "value": [[2.0, ["n", "k"]]]} for a in ("none", "relu")]
DESCRIPTION: dict[str, Any] = {
    "kind": "op",
    "schema": 1,
    "op": OP,
    "interface": INTERFACE,
    "axes": [
        *({"name": name, "classes": [{"name": "any", "when": []}]} for name in ("dtypes", "layout")),
        {"name": "epilogue", "classes": [{"name": "relu", "when": [{"attribute": "act", "in": ["relu"]}]}, {"name": "any", "when": []}]},
        {"name": "region", "classes": [{"name": "short", "when": [{"count": {"n": 1}, "max": 64}]}, {"name": "long", "when": []}]},
    ],
    "cost": {
        "flops": _SUM,
        "bytes_moved": _SUM,
        "flop_unit": [{"when": {}, "value": "fp32"}],
        "reads": [{"when": {}, "value": [[4.0, ["n", "k"]]]}],
        "l2_bytes_per_s": {"sm_90a": 8.2e12},
    },
    "ties": [{"when": [{"attribute": "act", "in": ["relu"]}], "then": {"save": True}, "equal": [["n", "k"]]}],
}
MEDIAN = frozen_sets.make_median(KERNEL, 64, 2.5) | {"sizes": {"n": 64, "k": 8}, "attributes": {"act": "none", "save": False}}
SURVEY: dict[str, Any] = {
    "kind": "survey",
    "arch": "sm_90a",
    "device": "NVIDIA H200",
    "record": "r",
    "weights": {KERNEL: [1.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.0]},
    "shapes": {KERNEL: {"tile": {"n": 64}, "slots": 66.0, "idle_us": 2.0, "least": {"n": 32}}},
    "groups": [{"group": "any/any", "kernels": [KERNEL], "points": [[64, 8, 0.5], [128, 8, None]]}],
}
LIBRARY: dict[str, Any] = {
    "kind": "library",
    "arch": "sm_90a",
    "library": "cublaslt",
    "version": 130002,
    "device": "NVIDIA H200",
    "interface": hash_value(INTERFACE),
    "domain": [{"attribute": "act", "in": ["relu"]}, {"count": {"n": 1}, "multiple": 8}, {"tensor": "x", "address": 16}],
    "alignment_bytes": {"x": 16},
    "workspace_bytes": 4096,
    "deterministic": True,
    "capture_safe": True,
    "accumulate": "float32",
    "record": "r",
    "points": [
        {
            "problem": "n64_k8",
            "sizes": {"n": 64, "k": 8},
            "attributes": {"act": "relu", "save": True},
            "median_us": 2.0,
            "error": 0.5,
            "kernel": KERNEL,
            "kernel_us": 2.5,
        },
        {
            "problem": "n8_k8",
            "sizes": {"n": 8, "k": 8},
            "attributes": {"act": "relu", "save": True},
            "median_us": None,
            "error": None,
            "kernel": KERNEL,
            "kernel_us": 2.5,
        },
    ],
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set with something of everything that a document can hold."""
    patch = pytest.MonkeyPatch()
    patch.setattr(frozen_sets, "INTERFACE", INTERFACE)
    patch.setattr(frozen_sets, "DESCRIPTION", DESCRIPTION)
    patch.setattr(frozen_sets, "make_median", lambda kernel, n, us: MEDIAN | {"kernel": kernel, "problem": f"{kernel}-{n}"})
    frozen_dir = write_frozen_set(tmp_path_factory.mktemp("written"))
    frozen_sets.change_index(frozen_dir, OP, "survey", "s", put=[SURVEY, LIBRARY], disk=frozen_sets.QuickDisk())
    patch.undo()
    assert check_op(frozen_dir, OP) == []
    return frozen_dir


@pytest.fixture
def place(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    (tmp_path / PRECIOUS).write_text("precious")
    return tmp_path / "frozen"


def expect(kinds: tuple[type[BaseException], ...], work: Callable[[], Any]) -> Any:
    """Return a value, None where the work raises an error of its own; any other goes through."""
    try:
        return work()
    except kinds:
        return None


def read_all(frozen_dir: Path) -> None:
    """Have every reader look at the set, and use what it returns."""
    with Watch() as watch:
        assert isinstance(check_op(frozen_dir, OP), list)
        frozen = expect((FrozenError,), lambda: read_frozen_op(frozen_dir, OP))
        for kernel in frozen.kernels if frozen else ():
            expect((FrozenError,), lambda kernel=kernel: read_kernel(frozen.folder, kernel))  # type: ignore[misc]
        read_history(frozen_dir / OP)
        op = expect((aicf_errors.FrozenError,), lambda: read_op(OP, frozen_dir))
        if op is not None:
            use(op)
        ops = expect((FrozenError,), lambda: select(frozen_dir))
        if ops is not None:
            expect((FrozenError,), lambda: (make_dispatcher(ops), list_kernels(ops)))
    assert watch.seen == []


def use(op: FrozenOp) -> None:
    """Do with an op that was read what a call does, but for running it."""
    problem = Problem({"n": 64, "k": 8})
    installed: Any = SimpleNamespace(find=lambda op, row, interface: SimpleNamespace(row=row, seal="s", find_fault=lambda params: ""))
    known = (aicf_errors.FrozenError, aicf_errors.SelectionError, ValueError)
    expect(known, lambda: Registry.holding(op).select(op.name, problem, HwCaps(9, 0)))
    for each in (problem, Problem({"n": 64, "k": 8}, {"act": "relu", "save": True})):
        expect(known, lambda each=each: Registry.holding(op, installed).select(op.name, each, HwCaps(9, 0)))  # type: ignore[misc]
    tables = expect(known, lambda: Registry.holding(op).find_tables(op.name, HwCaps(9, 0)))
    if tables is not None:
        expect(known, lambda: write_function(Signature(tables.interface, tables.ties), print, print))


def test_an_address_that_a_document_writes_with_a_point_is_an_integer() -> None:
    steps = list_address_steps([{"tensor": "x", "address": 2.0}, {"tensor": "y", "stride": 8}])
    assert steps == [2] and all(isinstance(step, int) for step in steps)


@pytest.mark.parametrize("kind", ["op", "entry", "median", "survey", "library"])
@FUZZ
@given(data=st.data())
def test_a_broken_line_of_the_index(place: Path, kind: str, data: st.DataObject) -> None:
    index = place / OP / INDEX
    original = index.read_bytes()
    lines = original.splitlines()
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    lines[number] = data.draw(break_document(lines[number]))
    try:
        index.write_bytes(b"\n".join(lines) + b"\n")
        read_all(place)
    finally:
        index.write_bytes(original)


@pytest.mark.parametrize("size", [None, 0, -1])
def test_a_survey_with_a_size_that_is_none(place: Path, size: Any) -> None:
    index = place / OP / INDEX
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    next(r for r in rows if r["kind"] == "survey")["groups"][0]["points"][0][0] = size
    index.write_text("".join(dump_line(r) + "\n" for r in rows))
    read_all(place)
    with pytest.raises(FrozenError, match="sizes of at least 1"):
        make_dispatcher(select(place))


@FUZZ
@given(data=st.data(), sealed=st.booleans())
def test_a_broken_manifest(place: Path, data: st.DataObject, sealed: bool) -> None:
    """Also one that is sealed anew, in the index too."""
    path, index = place / OP / MANIFEST, place / OP / INDEX
    original, rows = path.read_bytes(), index.read_bytes()
    content = data.draw(break_document(original))
    try:
        value = expect((DocumentError,), lambda: parse_json(content))
        if sealed and isinstance(value, dict) and "seal" in value:
            value["seal"] = make_seal(expand(value, json.loads((place / OP / TREE_FILE).read_text())))
            content = json.dumps(value).encode()
            index.write_bytes(rows.replace(json.loads(original)["seal"].encode(), value["seal"].encode()))
        path.write_bytes(content)
        read_all(place)
    finally:
        path.write_bytes(original)
        index.write_bytes(rows)


@FUZZ
@given(data=st.data(), named=st.booleans())
def test_a_broken_tree(place: Path, data: st.DataObject, named: bool) -> None:
    """Also one that its folder and a manifest, sealed anew, name."""
    path, manifest, index = (place / OP / name for name in (TREE_FILE, MANIFEST, INDEX))
    originals = {p: p.read_bytes() for p in (path, manifest, index)}
    content = data.draw(break_document(originals[path]))
    target = path
    try:
        value = expect((DocumentError,), lambda: parse_json(content))
        if named and isinstance(value, dict) and "files" in value:
            written = json.loads(originals[manifest]) | {"revision": hash_value(value)}
            written["seal"] = make_seal(expand(written, value))
            index.write_bytes(originals[index].replace(json.loads(originals[manifest])["seal"].encode(), written["seal"].encode()))
            manifest.write_text(json.dumps(written))
            target = place / OP / "revisions" / written["revision"][:16] / TREE
            target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        read_all(place)
    finally:
        if target != path:
            shutil.rmtree(target.parent)
        for each, original in originals.items():
            each.parent.mkdir(exist_ok=True)
            each.write_bytes(original)


@pytest.mark.parametrize("name", ["9" * 300, "/".join("a" * 200 for _ in range(30))])
def test_a_source_whose_name_no_file_can_have(place: Path, name: str) -> None:
    path = place / OP / TREE_FILE
    tree = json.loads(path.read_text())
    path.write_text(json.dumps(tree | {"files": tree["files"] | {f"sources/{name}": "0" * 64}}))
    assert check_op(place, OP) != []
    read_all(place)


@pytest.mark.parametrize("folder", ["history", "evidence"])
@FUZZ
@given(data=st.data())
def test_a_broken_event_or_evidence(place: Path, folder: str, data: st.DataObject) -> None:
    path = min((place / OP / folder).iterdir())
    original = path.read_bytes()
    try:
        path.write_bytes(data.draw(break_document(original)))
        read_all(place)
    finally:
        path.write_bytes(original)


@FUZZ
@given(data=st.data())
def test_a_broken_journal(place: Path, data: st.DataObject) -> None:
    before = hash_bytes((place / OP / INDEX).read_bytes())
    created = [
        "kernels/plain__threads1__0000000a.json",
        "revisions/000000000000000a/tree.json",
        "revisions/000000000000000a/sources/tiny/op.py",
    ]
    valid = {"schema": 1, "created": created, "before": before, "after": "0" * 64}
    path = place / OP / JOURNAL
    everything = frozen_sets.read_everything(place.parent)
    path.write_bytes(data.draw(break_document(dump_line(valid).encode())))
    try:
        with Watch() as watch:
            expect((FrozenError,), lambda: recover(place / OP))
    finally:
        path.unlink(missing_ok=True)
    assert watch.seen == []
    assert frozen_sets.read_everything(place.parent) == everything


RECORD: dict[str, Any] = {
    "uid": "a" * 32,
    "kind": "bench",
    "op": "softmax",
    "variant": "naive/threads64",
    "problem": "p",
    "status": "passed",
    "reason": "",
    "created_at": "2026-01-01T00:00:00+00:00",
    "device_kind": "cuda",
    "verify_version": 1,
    **dict.fromkeys(("spec_hash", "source_hash", "code_hash", "key", "flags"), ""),
    "figures": {"mode": "cold", "median_us": 2.0},
    "samples": [1.0, 2.0],
    "clocks": [],
    "run": {
        "uid": "b" * 32,
        "started_at": "2026-01-01T00:00:00+00:00",
        "command": "bench softmax",
        "commit": "c" * 40,
        "dirty": False,
        "environment": {
            "device_kind": "cuda",
            "device_name": "NVIDIA H200",
            "device_uuid": "",
            "driver_version": 13000,
            "runtime_version": 13000,
            "runtime_hash": "",
            "toolchain": "nvcc",
            "target": "h200",
            "host": "here",
        },
    },
}


@FUZZ
@given(data=st.data())
def test_broken_records(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "records.json"
    path.write_bytes(data.draw(break_document(json.dumps([RECORD]).encode())))
    records = Records("sqlite://")
    try:
        with Watch() as watch:
            expect((RecordError,), lambda: import_records(records, path))
    finally:
        records.close()
    assert watch.seen == []


@given(content=st.binary() | st.text().map(str.encode) | st.sampled_from([b for b in BROKEN_BYTES if len(b) < 2000]))
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@example(b'{"a": 1, "a": 1}')
@example(b"[NaN]")
@example(b"[1e400]")
def test_json_is_a_value_or_an_error(content: bytes) -> None:
    value = expect((DocumentError,), lambda: parse_json(content))
    if value is not None:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def test_what_has_no_one_meaning_is_no_json() -> None:
    for content, words in (
        (b'{"a": 1, "a": 1}', "'a' is given twice"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[1e400]", "too large a number"),
        (b"\xff", "is not UTF-8"),
        (b"[" * 100000, "nested too deeply"),
        (b'"\\ud800"', "is not UTF-8"),
    ):
        with pytest.raises(DocumentError, match=words):
            parse_json(content)


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    names = ("index", "manifest", "tree")
    schemas = {n: json.loads((find_frozen_dir() / SCHEMA / f"{n}.schema.json").read_text()) for n in names}
    registry: Schemas[Any] = Schemas().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas.values())
    return {n: Draft202012Validator(s, registry=registry) for n, s in schemas.items()}


@FUZZ
@given(data=st.data())
def test_the_validator_without_dependencies_says_what_jsonschema_says(
    written: Path, validators: dict[str, Draft202012Validator], data: st.DataObject
) -> None:
    documents = [json.loads(line) for line in (written / OP / INDEX).read_bytes().splitlines()]
    kind = data.draw(st.sampled_from(("index", "manifest", "tree")))
    valid = (
        data.draw(st.sampled_from(documents))
        if kind == "index"
        else json.loads((written / OP / (MANIFEST if kind == "manifest" else TREE_FILE)).read_text())
    )
    value = data.draw(mutate_value(valid))
    load = partial(load_schema, find_frozen_dir() / SCHEMA)
    fault = find_fault(load, kind, load(kind), value)
    assert (fault == "") == validators[kind].is_valid(value), fault
