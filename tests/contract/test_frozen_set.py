"""What is wrong in the frozen set is found when it is read, and named by file and field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from aicf.registry import HwCaps, Problem, Registry
from contract.frozen_set import list_ops, read_op
from contract.layout import expand, hash_value, make_seal, name_manifest
from contract.schemas import load_schema
from tests.freezing.frozen_sets import OP, REVISION, write_frozen_set

KERNEL = "plain__threads32__00000001"
MANIFEST = name_manifest(KERNEL)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frozen_set(tmp_path_factory.mktemp("written"))


@pytest.fixture
def frozen_dir(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    return tmp_path / "frozen"


def edit_manifest(frozen_dir: Path, change: Callable[[dict[str, Any]], Any], *, seal: bool = True) -> None:
    """Change a manifest; sealed anew, also in the index, it differs in nothing but the change."""
    path = frozen_dir / OP / MANIFEST
    manifest = json.loads(path.read_text())
    old = manifest["seal"]
    change(manifest)
    if seal:
        manifest["seal"] = make_seal(expand(manifest, read_tree(frozen_dir)))
        index = frozen_dir / OP / "index.jsonl"
        index.write_text(index.read_text().replace(old, manifest["seal"]))
    path.write_text(json.dumps(manifest))


def read_tree(frozen_dir: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((frozen_dir / OP / REVISION / "tree.json").read_text())
    return tree


def edit_row(frozen_dir: Path, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
    index = frozen_dir / OP / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    change(next(row for row in rows if row["kind"] == kind))
    index.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_whole_set_is_read(frozen_dir: Path) -> None:
    op = read_op(OP, frozen_dir)
    assert list(op.kernels) == [KERNEL, "plain__threads64__00000002"]
    assert [m["median_us"] for m in op.medians] == [2.5, 2.5]
    assert Registry(frozen_dir).select(OP, Problem({"n": 64}), HwCaps(9, 0)).kernel == KERNEL


def test_the_projects_own_set_is_read() -> None:
    assert list_ops()
    for op in list_ops():
        assert read_op(op).kernels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("domain"), r": 'domain' is a required property"),
        (lambda m: m["prior"].update(slots=0), r": prior/slots: 0 is less than the minimum of 1"),
        (lambda m: m["domain"].append({"size": "n"}), r": domain/2: "),
        (lambda m: m.update(schema=2), r": schema: is of format 2, and this version reads format 1"),
        (
            lambda m: m.update(kernel="plain__threads32__00000009"),
            r": kernel: it claims to be tiny/plain__threads32__0+9",
        ),
        (lambda m: m.update(interface="0" * 64), r": interface: it is neither the C interface that index.jsonl describes"),
    ],
)
def test_a_manifest_is_held_against_schema_name_and_interface(frozen_dir: Path, change: Any, message: str) -> None:
    edit_manifest(frozen_dir, change)
    with pytest.raises(FrozenError, match=rf"{MANIFEST}{message}"):
        read_op(OP, frozen_dir)


def test_a_kernel_of_an_earlier_interface_serves_the_calls_that_this_knew(frozen_dir: Path) -> None:
    earlier, condition = "0" * 64, {"count": {"n": 1}, "max": 64}
    edit_manifest(frozen_dir, lambda m: m.update(interface=earlier))
    edit_row(frozen_dir, "op", lambda row: row.update(extends=[{"interface": earlier, "when": [condition]}]))
    domains = [k.manifest["domain"] for k in read_op(OP, frozen_dir).kernels.values()]
    assert [condition in domain for domain in domains] == [True, False]
    registry, hopper = Registry(frozen_dir), HwCaps(9, 0)
    chosen = [registry.select(OP, Problem({"n": n}), hopper).kernel for n in (64, 65)]
    assert chosen == [KERNEL, "plain__threads64__00000002"]


def test_a_manifest_that_was_edited_is_not_what_was_sealed(frozen_dir: Path) -> None:
    edit_manifest(frozen_dir, lambda m: m.update(deterministic=False), seal=False)
    with pytest.raises(FrozenError, match=rf"{MANIFEST}: seal: the manifest is not what was sealed"):
        read_op(OP, frozen_dir)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("median", lambda r: r.update(median_us=0), r"index.jsonl: line \d: median_us: 0 is less than or equal to the minimum of 0"),
        ("entry", lambda r: r["bucket"].pop("arch"), r"index.jsonl: line \d: bucket: 'arch' is a required property"),
        ("entry", lambda r: r.update(role="best"), r"index.jsonl: line \d: role: 'best' is not one of"),
        ("entry", lambda r: r.update(kind="note"), r"line \d: kind: must be one of op, entry, median, survey, library, is 'note'"),
        ("op", lambda r: r.update(op="other"), r"index.jsonl: must have one line of kind op, for tiny"),
        ("op", lambda r: r.update(schema=9), r"index.jsonl: line \d: schema: is of format 9"),
    ],
)
def test_a_line_of_the_index_is_held_against_its_schema(frozen_dir: Path, kind: str, change: Any, message: str) -> None:
    edit_row(frozen_dir, kind, change)
    with pytest.raises(FrozenError, match=message):
        read_op(OP, frozen_dir)


def test_what_is_missing_or_no_json_is_named(frozen_dir: Path) -> None:
    with pytest.raises(FrozenError, match=r"op 'conv' is not frozen; there are: tiny"):
        read_op("conv", frozen_dir)
    index = frozen_dir / OP / "index.jsonl"
    index.write_text(index.read_text() + "{\n")
    with pytest.raises(FrozenError, match=r"index.jsonl: line \d: is not JSON"):
        read_op(OP, frozen_dir)
    index.write_text(index.read_text().removesuffix("{\n"))
    (frozen_dir / OP / MANIFEST).unlink()
    with pytest.raises(FrozenError, match=rf"{MANIFEST}: cannot be read: .*the index names this kernel"):
        read_op(OP, frozen_dir)


def test_a_tree_that_was_edited_or_is_gone_is_named(frozen_dir: Path) -> None:
    path = frozen_dir / OP / REVISION / "tree.json"
    tree = read_tree(frozen_dir)
    tree["files"]["sources/tiny/op.py"] = "0" * 64
    path.write_text(json.dumps(tree))
    with pytest.raises(FrozenError, match=rf"{REVISION}/tree.json: it is not the tree that {KERNEL}.json names"):
        read_op(OP, frozen_dir)
    path.write_text(json.dumps(tree | {"files": {"../../elsewhere": "0" * 64}}))
    with pytest.raises(FrozenError, match=rf"{REVISION}/tree.json: files: '../../elsewhere' does not match"):
        read_op(OP, frozen_dir)
    path.unlink()
    with pytest.raises(FrozenError, match=rf"{REVISION}/tree.json: cannot be read: .*{KERNEL} is made of it"):
        read_op(OP, frozen_dir)


def set_flops(row: dict[str, Any], postfix: Any) -> None:
    table = [{"when": {}, "value": {"postfix": postfix}}]
    row["cost"] = {"flops": table, "bytes_moved": table, "flop_unit": [{"when": {}, "value": "fp32"}]}


def test_a_cost_may_be_any_formula_and_is_what_estimates_are_made_of(frozen_dir: Path) -> None:
    edit_row(frozen_dir, "op", lambda r: set_flops(r, [1e9, "n", 64, "-//", "*"]))
    registry = Registry(frozen_dir)
    for kernel in registry.read(OP).frozen.kernels.values():
        kernel.manifest["prior"].update({"tile": {}, "flops_per_s": {"fp32": 1e12}, "bytes_per_s": 1e15})  # type: ignore[attr-defined]
    core = registry.find_tables(OP, HwCaps(9, 0)).core
    for n, blocks in ((1, 1), (64, 1), (65, 2), (6400, 100)):
        asked = core.ask(core.interface.make_query(Problem({"n": n})))
        assert asked.flops == asked.num_bytes == 1e9 * blocks
        assert core.estimate_us(asked, 0) == pytest.approx(1e3 * blocks)


@pytest.mark.parametrize(
    ("postfix", "message"),
    [
        (["m"], r"cost/flops: a formula names 'm', which is neither a size \(n\)"),
        (["n", "+"], r"cost/flops: a formula's '\+' has fewer than 2 numbers before it"),
        (["n", "n"], r"cost/flops: a formula leaves 2 numbers"),
        ([], r"index.jsonl: line \d: cost: .* is not valid under any"),
        (["n", "**"], r"index.jsonl: line \d: cost: .* is not valid under any"),
        (["n", None], r"index.jsonl: line \d: cost: .* is not valid under any"),
        ("n", r"index.jsonl: line \d: cost: .* is not valid under any"),
    ],
)
def test_a_cost_that_is_no_formula_is_refused(frozen_dir: Path, postfix: Any, message: str) -> None:
    edit_row(frozen_dir, "op", lambda r: set_flops(r, postfix))
    with pytest.raises(FrozenError, match=message):
        read_op(OP, frozen_dir)


def test_missing_schemas_are_named(tmp_path: Path) -> None:
    with pytest.raises(FrozenError, match=r"the schemas of the frozen set cannot be read"):
        load_schema(tmp_path, "index")


def test_a_set_is_held_against_the_projects_schemas_and_not_its_own(frozen_dir: Path) -> None:
    (frozen_dir / "schema").mkdir(exist_ok=True)
    for name in ("index", "manifest"):
        (frozen_dir / "schema" / f"{name}.schema.json").write_text(json.dumps({"$id": f"aicf:{name}"}))
    edit_row(frozen_dir, "entry", lambda r: r.update(kernel="../../elsewhere"))
    with pytest.raises(FrozenError, match=r"index.jsonl: line \d: kernel: '../../elsewhere' does not match"):
        read_op(OP, frozen_dir)


@pytest.mark.parametrize("symbol", ["system", "tiny_launch__plain__threads64__00000002", "dlopen"])
def test_entry_points_are_the_kernels_own(frozen_dir: Path, symbol: str) -> None:
    edit_manifest(frozen_dir, lambda m: m["entry_points"].update(launch=symbol))
    with pytest.raises(FrozenError, match=rf"entry_points/launch: {symbol} is not this kernel's"):
        read_op(OP, frozen_dir)


@pytest.mark.parametrize(
    "flag", ["-ccbin=/tmp/g++", "--compiler-bindir", "-Xcompiler=-fplugin=/tmp/x.so", "-fplugin=x.so", "-include", "-o", "-DAICF_X=`id`", 7]
)
def test_a_flag_that_could_run_something_is_refused(frozen_dir: Path, flag: str | int) -> None:
    edit_manifest(frozen_dir, lambda m: m["build"]["flags"].append(flag))
    with pytest.raises(FrozenError, match=r"build/flags/2: "):
        read_op(OP, frozen_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i["tensors"][0].update(name="x=print('run'))"), r"interface/tensors/0/name: .* does not match"),
        (lambda i: i["tensors"][0].update(name="class"), r"interface: class is a keyword of Python"),
        (lambda i: i["tensors"][0].update(field="gone"), r"interface/tensors/x: gone is not one of n, x, y"),
        (lambda i: i["tensors"][0].update(field="n"), r"interface/tensors/x: field n is not a pointer"),
        (lambda i: i["tensors"][1].update(name="x"), r"interface: x is given twice"),
        (lambda i: i["sizes"].update(n="x"), r"interface/fields: x is a pointer, and holds a number"),
        (lambda i: i.update(include="../../../etc/passwd"), r"interface/include: .* does not match"),
        (lambda i: i.update(struct="X; int y"), r"interface/struct: .* does not match"),
        (lambda i: i["tensors"][0]["shape"][0].update(value=["m"]), r"interface/tensors/x/shape: m is not one of n"),
        (lambda i: i["tensors"][0]["shape"][0].update(when={"act": "relu"}), r"interface/tensors/x/shape: act is not one of none"),
    ],
)
def test_an_interface_is_held_together(frozen_dir: Path, change: Any, message: str) -> None:
    digest: dict[str, str] = {}

    def edit(row: dict[str, Any]) -> None:
        change(row["interface"])
        digest["new"] = hash_value(row["interface"])

    edit_row(frozen_dir, "op", edit)
    for manifest in (frozen_dir / OP).glob("kernels/*.json"):
        document = json.loads(manifest.read_text())
        old = document["seal"]
        document["interface"] = digest["new"]
        document["seal"] = make_seal(expand(document, read_tree(frozen_dir)))
        manifest.write_text(json.dumps(document))
        index = frozen_dir / OP / "index.jsonl"
        index.write_text(index.read_text().replace(old, document["seal"]))
    with pytest.raises(FrozenError, match=message):
        read_op(OP, frozen_dir)


def test_a_folder_that_has_no_ops_name_is_no_op(frozen_dir: Path) -> None:
    shutil.copytree(frozen_dir / OP, frozen_dir / "x(y)")
    assert list_ops(frozen_dir) == [OP]
    with pytest.raises(FrozenError, match="is not frozen; there are: tiny"):
        read_op("../frozen/tiny", frozen_dir)
