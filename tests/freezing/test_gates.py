"""Each gate lets the honest pass, and names what is wrong with a liar."""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.formulas import evaluate, list_tokens
from contract.index import Index
from device import Device
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.benchmark.session import Judged
from harness.build.binding import build_binding, open_variant
from harness.build.builder import BuildResult, build_op
from harness.build.interface import describe_interface, read_api, read_struct
from harness.build.resources import Resources
from harness.build.sealed import SealedVariant
from harness.discover import LoadedOp, find_op, find_ops, load_op
from harness.errors import FrozenError
from harness.freezing.decide.buckets import find_bucket, list_axes, make_fallback_bucket
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.gates.checks import _find_worst, find_changes, pass_gates
from harness.freezing.gates.interface_calls import find_wrong_call
from harness.freezing.gates.provenance import find_move, find_wrong_origin, name_commit
from harness.freezing.seal.cost import describe_cost
from harness.freezing.seal.manifest import list_flags, name_kernel
from harness.freezing.seal.rebuild import prove_sealed
from harness.freezing.seal.sources import collect_sources
from harness.records.provenance import Commit, find_commit
from harness.spec import Attribute, Axis, Cost, Op, Problem
from harness.spec.conditions import Count, read_condition
from harness.targets import find_target
from harness.verify.plan import Effort, make_plan
from tests.harness.tiny_op import write_tiny_op


@pytest.mark.parametrize("lie", ["", "codes", "sizes", "strides"])
def test_an_interface_that_lies_gives_wrong_results(device: Device, lie: str) -> None:
    loaded = find_op("gemm_bias_act")
    (variant,) = loaded.op.select_variants(["naive/bm16_bn16"])
    toolchain = find_toolchain()
    (build,) = build_op(loaded, [variant], toolchain=toolchain, target=find_target("h200"))
    assert build.library is not None
    launchable = open_variant(loaded.op, build_binding(loaded, toolchain), build.library, variant)
    interface = describe_interface(loaded.op, read_api(loaded))
    if lie == "codes":
        next(a for a in interface["attributes"] if a["name"] == "act")["codes"].reverse()
    elif lie == "sizes":
        interface["sizes"] |= {"M": "n", "N": "m"}
    elif lie == "strides":
        next(t for t in interface["tensors"] if t["name"] == "y")["stride"] = "lda"
    session: Any = SimpleNamespace(loaded=loaded, device=device)
    fault = find_wrong_call(session, build, launchable, interface)
    assert bool(fault) is bool(lie), fault
    device.take_last_error()


def test_names_are_passed_as_the_header_numbers_them() -> None:
    op, acts = find_op("gemm_bias_act").op, Attribute("act", ("silu", "none"), "none")
    op = replace(
        op,
        attributes=(acts,),
        problems=(Problem({"M": 1, "N": 1, "K": 1}),),
        tensors=op.tensors[:1],
        goals=(),
        axes=(),
        ties=(),
        population=None,
    )
    header = "typedef struct TinyParams { void* a; int64_t m, n, k; int32_t act; } TinyParams;"
    names = '#define AICF_ACT_NAMES {"none", "relu", "silu"}\n'
    (act,) = describe_interface(op, names + header)["attributes"]
    assert (act["choices"], act["codes"]) == (["silu", "none"], [2, 0])
    with pytest.raises(FrozenError, match="no AICF_ACT_NAMES with 'silu': what does the field hold for it"):
        describe_interface(op, header)


def test_every_kernel_of_every_op_can_be_promoted() -> None:
    for name in find_ops():
        for kernel in find_op(name).op.kernels:
            assert kernel.domain is not None, f"{name}: {kernel.name} has no domain"
            for bound in kernel.variants:
                conditions = kernel.domain(bound)
                assert [read_condition(c.to_json()) for c in conditions] == list(conditions)


def test_a_tree_with_changes_is_refused_but_for_the_frozen_set(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    assert "is not a git checkout" in find_changes(tmp_path)
    git("init", "-q")
    (tmp_path / "kernel.cu").write_text("1")
    assert "kernel.cu the first: commit them" in find_changes(tmp_path)
    git("add", "-A")
    git("commit", "-qm", "first")
    assert find_changes(tmp_path) == ""
    (tmp_path / "frozen").mkdir()
    (tmp_path / "frozen" / "index.jsonl").write_text("")
    assert find_changes(tmp_path) == ""
    (tmp_path / "kernel.cu").write_text("2")
    assert "1 files differ from the commit" in find_changes(tmp_path)


def make_record(loaded: LoadedOp, build: Any, **changes: Any) -> Any:
    """Return a record that verifies the build, of an earlier run in a clean tree."""
    commit = changes.pop("commit", "") or find_commit(find_project_root()).sha
    run = SimpleNamespace(commit=commit, dirty=changes.pop("dirty", False), environment=SimpleNamespace(device_name="a device"))
    figures = {"problems": [{"problem": s.problem.name, "status": "passed"} for s in make_plan(loaded.op, Effort())], "proof": "drawn"}
    facts = {"code_hash": build.code_hash, "source_hash": build.source_hash, "spec_hash": loaded.spec_hash, "figures": figures}
    return SimpleNamespace(**({"id": 7, "uid": "f" * 32, "problem": "*", "run_id": 3, "run": run} | facts | changes))


def make_session(loaded: LoadedOp, record: Any, run_id: int = 4) -> Any:
    records, device = SimpleNamespace(read_result=lambda _: record), SimpleNamespace(is_emulated=True)
    return SimpleNamespace(loaded=loaded, records=records, device=device, run_id=run_id, commit=find_commit(find_project_root()))


def run_gates(loaded: LoadedOp, build: Any, monkeypatch: pytest.MonkeyPatch, *, ok: bool = True, **record: Any) -> list[Gate]:
    """Run the gates on a record that says so; nothing that needs a device comes before the first that refuses."""
    monkeypatch.setattr("harness.freezing.gates.checks.find_changes", lambda root: "")
    session = make_session(loaded, make_record(loaded, build, **record))
    candidate = Candidate(build, Path("binding.so"))
    judged = Judged(build, ok, "" if ok else "race", 7)
    pass_gates(session, Index(loaded.op.name, Path(), ()), candidate, judged, lambda _: None)
    return [g for g in candidate.gates if not g.passed]


def test_an_infinite_ratio_is_no_worst_figure() -> None:
    """Where bound and error are infinite, the verdict has a text, as JSON knows no infinity."""
    assert _find_worst([{"max_ulp": "inf"}, {"max_ulp": 0.5}, {"max_ulp": 2}], "max_ulp") == 2
    assert _find_worst([{"max_ulp": "inf"}], "max_ulp") == 0.0


def test_spills_warnings_and_verdicts_are_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = find_op("softmax")
    (variant,) = loaded.op.select_variants(["naive/threads64"])
    build: Any = BuildResult(
        variant, Path("x.so"), "c", "k", Resources(32, spill_store_bytes=8, spill_load_bytes=8), None, 0.0, cached=True
    )
    nothing = {"problems": [], "proof": "drawn"}
    refused = run_gates(loaded, build, monkeypatch, figures=nothing)
    assert [g.name for g in refused] == ["no spills", "verified"]
    assert refused[0].detail == "16 bytes spilled, 0 allowed"
    assert "was not run" in refused[1].detail
    slow = replace(build, resources=Resources(32, advice=("ptxas info: (C7515) Potential Performance Loss: serialized",)))
    assert ("no warnings", slow.resources.advice[0]) in [(g.name, g.detail) for g in run_gates(loaded, slow, monkeypatch, figures=nothing)]
    build = replace(build, resources=Resources(32))
    assert "verifies only rows1_columns1" in run_gates(loaded, build, monkeypatch, problem="rows1_columns1")[0].detail
    assert "verify says race" in run_gates(loaded, build, monkeypatch, ok=False)[0].detail
    build = replace(build, library=None, error="kernels.cu(3): error")
    assert [(g.name, g.detail) for g in run_gates(loaded, build, monkeypatch)] == [("built", "kernels.cu(3): error")]


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"dirty": True}, "record ffffffffffff was made while files differed from its commit"),
        ({"commit": "c" * 40}, "was made at commit cccccccccccc, which this checkout does not follow: verify again"),
        ({"source_hash": "another"}, "verifies another build than the one that is to be sealed"),
        ({"code_hash": "another"}, "verifies another build than the one that is to be sealed"),
        ({"spec_hash": "another"}, "verifies against another description of the op"),
    ],
)
def test_a_verdict_on_something_else_than_what_is_sealed_is_refused(monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any], why: str) -> None:
    loaded = find_op("softmax")
    (build,) = build_op(loaded, loaded.op.select_variants(["naive/threads64"]), toolchain=find_toolchain(), target=find_target("h200"))
    (refused,) = run_gates(loaded, build, monkeypatch, **lie)
    assert refused.name == "verified" and why in refused.detail
    sources = collect_sources(loaded)
    honest = make_record(loaded, build)
    assert find_wrong_origin(make_session(loaded, honest), build, honest, sources) == ""
    # A source that was edited after the build, and one that is not sealed at all.
    for name in ("common/reduce.cuh", "softmax/launcher.cu"):
        for edited in (sources | {name: b"// faster"}, {n: c for n, c in sources.items() if n != name}):
            fault = find_wrong_origin(make_session(loaded, honest), build, honest, edited)
            assert fault == f"{name} is not what was built and verified: it changed meanwhile"


def test_the_commit_of_a_manifest_holds_the_sources_or_says_that_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = find_op("softmax")
    (variant,) = loaded.op.select_variants(["naive/threads64"])
    build = BuildResult(variant, Path("x.so"), "c", "k", Resources(32), None, 0.0, cached=True)
    record = make_record(loaded, build)
    commit = record.run.commit
    assert name_commit(make_session(loaded, record), record, "1 files differ", "") == commit, "it was clean then"
    own = make_session(loaded, record, run_id=record.run_id)
    assert name_commit(own, record, "", "") == commit and name_commit(own, record, "1 files differ", "") == f"{commit}-dirty"
    assert name_commit(own, record, "1 files differ", "d" * 40) == "d" * 40
    # This session's own run may be in a tree with changes to the frozen set alone: the gate of the tree knows.
    dirty = make_record(loaded, build, dirty=True)
    assert find_wrong_origin(own, build, dirty, collect_sources(loaded)) == ""
    assert find_move(own) == ""
    own.commit = Commit("e" * 40, dirty=False)
    assert "the checkout went from commit eeeeeeeeeeee to" in find_move(own)


PATH_LAUNCHER = """
#include "common/tiny.cuh"
__device__ const char kPath[] = __FILE__;
__global__ void tiny_plain(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = twice(x[threadIdx.x]) + kPath[n];
}
extern "C" void tiny_run(const float* x, float* y, int n) { tiny_plain<<<1, 32>>>(x, y, n); }
"""


@pytest.mark.parametrize("tells_its_path", [False, True])
def test_a_kernel_that_depends_on_where_it_is_built_is_not_sealed(tmp_path: Path, tells_its_path: bool) -> None:
    folder = write_tiny_op(tmp_path) / "tiny"
    if tells_its_path:
        (folder / "launcher.cu").write_text(PATH_LAUNCHER)
    (folder / "pybind.cpp").write_text("")
    loaded = LoadedOp(load_op(folder), folder)
    (variant,) = loaded.op.select_variants(["plain/threads32"])
    toolchain, target = find_toolchain(), find_target("h200")
    (build,) = build_op(loaded, [variant], toolchain=toolchain, target=target)
    sources = collect_sources(loaded)
    manifest = {
        "kernel": name_kernel(loaded, variant, target, sources),
        "arch": "sm_90a",
        "build": {
            "source": "sources/tiny/launcher.cu",
            "flags": [*list_flags(loaded, variant, target), "-DAICF_VARIANT=x"],
            "gencode": target.gencode,
            "machine_code": {"sm_90a": build.code_hash},
        },
    }
    fault = prove_sealed(manifest, sources, toolchain, tmp_path)
    assert ("the machine code is" in fault) is tells_its_path
    # Another machine code than the sealed one: a swapped cubin.
    manifest["build"]["machine_code"]["sm_90a"] = "0" * 64
    (tmp_path / "again").mkdir()
    assert "the manifest pins 0000000000000000..." in prove_sealed(manifest, sources, toolchain, tmp_path / "again")


def test_a_kernels_name_holds_its_sources_flags_and_architecture(tmp_path: Path) -> None:
    loaded = find_op("softmax")
    (variant,) = loaded.op.select_variants(["naive/threads64"])
    sources = collect_sources(loaded)
    name = name_kernel(loaded, variant, find_target("h200"), sources)
    assert name.startswith("naive__threads64__")
    assert name_kernel(loaded, variant, find_target("h100"), sources) == name, "the same architecture"
    assert name_kernel(loaded, variant, find_target("a100"), sources) != name
    assert name_kernel(loaded, variant, find_target("h200"), sources | {"common/reduce.cuh": b""}) != name
    assert name_kernel(loaded, variant, find_target("h200"), sources | {"softmax/op.py": b""}) == name
    assert SealedVariant("naive", (("threads", 64),), name).symbol_suffix == name


def test_the_interface_is_read_from_op_and_header() -> None:
    loaded = find_op("gemm_bias_act")
    interface = describe_interface(loaded.op, read_api(loaded))
    attributes = {a["name"]: a for a in interface["attributes"]}
    assert attributes["act"]["codes"] == [0, 1, 2, 3, 4] and attributes["act"]["field"] == "act"
    assert attributes["with_bias"]["present"] == "bias" and attributes["save_z"]["present"] == "z"
    b = next(t for t in interface["tensors"] if t["name"] == "b")
    assert b["stride"] == "ldb"
    assert b["shape"] == [{"when": {"b_layout": "kn"}, "value": ["K", "N"]}, {"when": {"b_layout": "nk"}, "value": ["N", "K"]}]
    assert [f["type"] for f in interface["fields"]][:15] == ["pointer"] * 5 + ["int64"] * 7 + ["int32"] * 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("typedef struct TinyParams { float* x; size_t n; } TinyParams;", "field `size_t n` of TinyParams is not understood"),
        ("typedef struct TinyParams { float x[4]; } TinyParams;", "field `float x\\[4\\]`"),
        ("struct Tiny { int n; };", "has no `typedef struct"),
    ],
)
def test_a_header_that_is_not_understood_is_named(text: str, why: str) -> None:
    with pytest.raises(FrozenError, match=why):
        read_struct("tiny", text)


def test_a_cost_becomes_a_sum_of_products_where_it_is_one() -> None:
    op = find_op("gemm_bias_act").op
    cost = describe_cost(op)
    assert cost is not None
    plain = {"act": "gelu_tanh", "with_bias": True, "with_residual": False, "with_dropout": False}
    (row,) = [r for r in cost["flops"] if r["when"] == plain]
    assert sorted(row["value"]) == [[2.0, ["M", "N", "K"]], [9.0, ["M", "N"]]]
    kind = {"dtype": "float16", "b_layout": "nk", "with_bias": True, "with_residual": True, "with_dropout": False}
    (row,) = [r for r in cost["reads"] if r["when"] == kind]
    assert row["value"] == [[2.0, ["M", "K"]], [2.0, ["N", "K"]], [2.0, ["N"]], [2.0, ["M", "N"]]]
    assert cost["l2_bytes_per_s"]["sm_90a"] == find_target("h200").l2_bytes_per_s


def leave_dtypes(op: Op) -> Op:
    """Return an op whose only choice is its dtype, for formulas that depend on none: they are looked for under every choice."""
    attributes = tuple(a if a.name == "dtype" else replace(a, choices=(a.default,)) for a in op.attributes)
    return replace(op, attributes=attributes, problems=(Problem(op.problems[0].sizes),), goals=(), population=None)


def test_a_size_may_be_squared_in_a_cost() -> None:
    """Attention's products are 4 B H S S D: a size that is named twice."""
    op = leave_dtypes(find_op("gemm_bias_act").op)

    def attend(p: Problem) -> Cost:
        m, n, k = (p.sizes[s] for s in ("M", "N", "K"))
        return replace(op.cost(p), flops=4.0 * m * n * n * k + 3.0 * m * n * n + 0.5 * k**3 + 7.0)

    cost = describe_cost(replace(op, cost=attend))
    (row,) = cost["flops"]
    assert row["value"] == [[7.0, []], [3.0, ["M", "N", "N"]], [0.5, ["K", "K", "K"]], [4.0, ["M", "N", "N", "K"]]]


def make_cost(op: Op, flops: Callable[[Any, Any, Any], Any]) -> Op:
    return replace(op, cost=lambda p: Cost(flops(*(p.sizes[s] for s in ("M", "N", "K"))), 1.0, 1.0))


@pytest.mark.parametrize(
    ("flops", "postfix"),
    [
        (lambda m, n, k: -(-m // 128) * n, ["M", 128.0, "-//", "N", "*"]),
        (lambda m, n, k: 2 * n * max(m, 64), [2.0, "N", "*", "M", 64.0, "max()", "*"]),
        (lambda m, n, k: min(m * n, k) / 3, ["K", "M", "N", "*", "min()", 3.0, "/"]),
        (lambda m, n, k: m * n if m <= 16 else m * k, [16.0, "M", "<", "M", "K", "*", "M", "N", "*", "?:"]),
        (lambda m, n, k: n * math.ceil(m / 7) + sum([k, 1]), ["N", "M", 7.0, "/", 1.0, "-//", "*", "K", 1.0, "+", "+"]),
        (lambda m, n, k: m**4, ["M", "M", "*", "M", "*", "M", "*"]),
        (lambda m, n, k: m % 8 + (5 if k == 3 else 0) - (-n), None),
        (lambda m, n, k: max(m, n, k) - min(m, n, k), None),
    ],
)
def test_a_cost_of_another_formula_is_traced(flops: Callable[[Any, Any, Any], Any], postfix: list[Any] | None) -> None:
    (row,) = describe_cost(make_cost(leave_dtypes(find_op("gemm_bias_act").op), flops))["flops"]
    assert postfix is None or row["value"] == {"postfix": postfix}
    generator = random.Random(4)
    for _ in range(200):
        sizes = {s: generator.randrange(1, generator.choice([6, 40, 9000])) for s in ("M", "N", "K")}
        assert evaluate(list_tokens(row["value"]), sizes) == pytest.approx(float(flops(*sizes.values())), rel=1e-12)


@pytest.mark.parametrize(
    ("flops", "why"),
    [
        (lambda m, n, k: m**1.5, r"raises a size to the power 1.5: whole numbers from 1 to 8 are understood"),
        (lambda m, n, k: float(-(-m // 128)), r"makes a plain number of a size, with float\(\)"),
        (lambda m, n, k: math.log2(m), r"makes a plain number of a size, with float\(\) or a function of math"),
        (lambda m, n, k: m * math.nan, r"computes with nan"),
        (lambda m, n, k: sum(i * i * i * i for i in range(m)), r"counts to a size"),
        (lambda m, n, k: round(m / 3), r"rounds a size with round\(\)"),
        (lambda m, n, k: m**4 + len(str(m)), r"gives another figure"),
        (lambda m, n, k: {1: 2.0}.get(m % 2, 0.5) * m, r"unhashable"),
        (lambda m, n, k: sum(m > i for i in range(1, 99)) * m, r"compares sizes more than 32 times"),
    ],
)
def test_a_cost_that_is_no_formula_is_refused_with_the_reason(flops: Callable[[Any, Any, Any], Any], why: str) -> None:
    crooked = make_cost(find_op("gemm_bias_act").op, flops)
    said = r"gemm_bias_act/op.py: flops of cost\(\) is not a sum of products of sizes, .*, and cannot be traced \(.*\): it "
    with pytest.raises(FrozenError, match=f"{said}.*{why}"):
        describe_cost(crooked)


def test_a_problem_is_in_the_first_class_that_holds() -> None:
    op = find_op("gemm_bias_act").op
    half = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}
    for sizes, layout, region in (
        ((2, 1 << 20, 8), "nk_whole", "rows_to_2_wide"),
        ((3, 8, 8), "nk_whole", "rows_to_8"),
        ((512, 513, 64), "nk", "outputs_to_512k"),
        ((8192, 8192, 64), "nk_whole", "outputs_beyond"),
    ):
        bucket = find_bucket(op, Problem(dict(zip("MNK", sizes, strict=True)), half), "sm_90a")
        assert bucket == {"arch": "sm_90a", "dtypes": "bfloat16", "layout": layout, "epilogue": "smooth", "region": region}
    plain = replace(op, axes=())
    assert list(list_axes(plain)[2].classes) == ["none", "relu", "gelu_tanh", "gelu_erf", "silu"], "without axes: its first attribute"
    own = replace(op, axes=(Axis("wide", {"yes": (Count({"N": 1}, min=512),), "no": ()}, part="region"),))
    assert find_bucket(own, Problem({"M": 512, "N": 513, "K": 64}, half), "sm_90a") == {"arch": "sm_90a", "wide": "yes"}
    assert make_fallback_bucket(own, "sm_90a") == {"arch": "sm_90a", "wide": "any"}
    narrow = replace(op, axes=(Axis("region", {"small": (Count({"M": 1}, max=4),)}),))
    with pytest.raises(FrozenError, match="axis region has no class for problem M512"):
        find_bucket(narrow, Problem({"M": 512, "N": 1, "K": 1}), "sm_90a")
