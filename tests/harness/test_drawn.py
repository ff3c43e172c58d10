"""``compare --drawn``: who is timed, who is refused, what runs come to, pages; on a fake GPU and from made-up times."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from contract.libraries.adapters import Adapter
from harness.compare.drawn import frozen_choice, without_gpu
from harness.compare.drawn.contenders import Contenders
from harness.compare.drawn.frozen_choice import FrozenChoice
from harness.compare.drawn.library_facts import examine_library, judge_kinds
from harness.compare.drawn.page import make_page, summarize
from harness.compare.drawn.problems import DrawnProblem, draw_problems
from harness.compare.drawn.record import (
    FROZEN,
    OWN,
    PEER,
    VARIANT,
    Contender,
    DrawnRow,
    DrawnRun,
    add_row,
    group_rows,
    merge_runs,
    put_run,
    read_runs,
    write_runs,
)
from harness.compare.drawn.seeds import NEIGHBOURS, POPULATION, SeedUse, describe_uses, note_use, read_uses
from harness.compare.drawn.timing import line_up
from harness.discover import LoadedOp, find_op
from harness.errors import FrozenError, RecordError
from harness.records import load
from harness.report.pictures.drawn import plot_drawn
from harness.report.pictures.page import write_page
from harness.report.pictures.svg import Drawing
from harness.report.pictures.theme import NARROW, WIDE
from harness.spec import Choice, Group, LogRange, Op, Peer, Population, Problem, SpecError, Variant
from harness.timing.ahead import ExpectedAhead, expect_ahead
from harness.verbs.compare import lead_goals
from tests.harness.fake_device import FakeArray, FakeInstruments
from tests.harness.test_session import Bench, give_wrong, run
from tests.harness.toy_op import ToyKernel, honest, make_toy

GROUPS = (
    Group("small", "small ones", {"M": LogRange(2, 24), "N": (8, 16), "K": (4, 8)}, ("numpy", "missing"), {"relu": (True, False)}),
    Group("padded", "padded rows", {"M": LogRange(2, 24), "N": (8,), "K": (4, 8)}, ("numpy",), padding={"A": (1, 3)}),
)
# What a library may serve of the toy: sizes of its first group, judged with and without ReLU.
ADAPTER = Adapter("numpy", "toy", (), {}, ({"count": {"K": 1}, "multiple": 4},), {}, kind="relu")
TITLES = {g.name: g.title for g in GROUPS}
ENVIRONMENT = {"device_name": "GPU X", "driver_version": 13000, "toolchain": "nvcc 13"}


def make_op() -> Op:
    return make_toy(population=Population(GROUPS), choose=lambda p: Choice(Variant("honest"), "the only one"))


def contender(name: str, role: str, us: float | None, status: str = "passed", error: float | None = 0.5) -> Contender:
    return Contender(name, role, status, us, us and 0.99 * us, us and 1.01 * us, error)


def make_row(
    problem: str = "M1", group: str = "small", *others: Contender, own_us: float | None = 10.0, status: str = "passed"
) -> DrawnRow:
    contenders = (contender("k", FROZEN, own_us, status), *others)
    return DrawnRow(group, problem, {"M": 1}, {}, {}, "k", "the frozen decision", "honest", "surveyed", contenders)


def make_run(*rows: DrawnRow, seed: int = 7, started: str = "2026-01-01T00:00:00", index: str = "i", device: str = "GPU X") -> DrawnRun:
    environment = ENVIRONMENT | {"device_name": device}
    return DrawnRun("toy", seed, 5, started, f"compare toy --drawn 5 --seed {seed}", "commit abc", "sm_90a", index, environment, rows=rows)


def test_a_ratio_is_the_fastest_librarys_time_over_that_of_what_users_get() -> None:
    row = make_row("M1", "small", contender("lib", PEER, 20.0), contender("other", PEER, 12.0), contender("honest", OWN, 8.0))
    assert row.ratio == pytest.approx(1.2) and row.peer is not None and row.peer.name == "other"
    assert row.regret == pytest.approx(0.25) and row.best is not None and row.best.name == "honest"
    assert make_row("M1", "small", contender("lib", PEER, 20.0)).regret is None


def test_a_contender_whose_output_is_wrong_is_refused_and_not_averaged() -> None:
    good = make_row("M1", "small", contender("lib", PEER, 20.0))
    liar = make_row("M2", "small", contender("lib", PEER, 20.0), own_us=1.0, status="failed")
    result = group_rows([good, liar], TITLES)[0]
    assert liar.ratio is None and "k: failed" in liar.reason
    assert result.geomean == pytest.approx(2.0) and len(result.measured) == 1
    fast_and_wrong = contender("lib", PEER, 1.0, "failed", 70.0)
    assert make_row("M1", "small", fast_and_wrong, contender("other", PEER, 20.0)).ratio == pytest.approx(2.0)
    unwritten = contender("lib", PEER, 1.0, "failed", None)
    assert make_row("M1", "small", unwritten).reason == "no library was timed"


def test_a_library_that_rounds_once_more_counts_and_is_named() -> None:
    row = make_row("M1", "small", contender("lib", PEER, 5.0, "failed", 1.4))
    assert row.ratio == pytest.approx(0.5) and row.reason == "lib is off by 1.4 of the bound"
    own_like_that = make_row("M1", "small", contender("lib", PEER, 5.0), status="failed")
    assert own_like_that.ratio is None


def test_a_library_may_be_allowed_a_larger_error_which_the_kernels_may_not() -> None:
    rough = replace(contender("lib", PEER, 5.0, "failed", 44.0), max_error=1000.0)
    row = make_row("M1", "small", rough)
    assert row.ratio == pytest.approx(0.5) and row.reason == "lib is off by 44 of the bound"
    assert not replace(rough, max_error=40.0).counts and not replace(rough, role=OWN).counts
    assert DrawnRow.read(json.loads(json.dumps(row.to_json()))) == row


@pytest.mark.parametrize(("share", "most"), [(1.0, 8), (0.0, 1)])
def test_as_many_problems_wait_as_the_hosts_memory_holds(share: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Problem] = []
    monkeypatch.setattr("harness.timing.ahead._MEMORY_SHARE", share)
    monkeypatch.setattr("harness.timing.ahead.expect", lambda op, problem: begun.append(problem) or problem)
    op = make_op()
    problems = [d.problem for d in draw_problems(op, 12, 7)]
    for i, found in enumerate(expect_ahead(op, problems)):
        assert found is problems[i] and len(begun) <= i + most
    assert len(begun) == len(problems)


def test_what_is_left_out_is_not_waited_for() -> None:
    op = make_op()
    problems = [d.problem for d in draw_problems(op, 12, 7)]
    with ExpectedAhead(op, problems) as ahead:
        for asked in (problems[3], problems[11], problems[2]):
            found = ahead.find(asked)
            assert {n: a.shape for n, a in found.inputs.items()} == {t.name: t.resolve_shape(asked) for t in op.inputs if t.present(asked)}


def test_groups_have_mean_worst_share_and_regret() -> None:
    lib = contender("lib", PEER, 20.0)
    rows = [make_row("a", "small", lib), make_row("b", "small", replace(lib, us=5.0)), make_row("c", "padded", replace(lib, us=10.0))]
    small, padded, every = group_rows(rows, TITLES)
    assert (small.title, padded.title, every.title) == ("small ones", "padded rows", "all")
    assert small.geomean == pytest.approx(1.0) and small.measured[0][0] == pytest.approx(0.5) and small.share_level == 0.5
    assert padded.share_level == 1.0 and padded.regret is None


def test_runs_of_one_frozen_set_merge_and_the_newest_time_of_a_problem_counts() -> None:
    lib = contender("lib", PEER, 20.0)
    old = make_run(make_row("a", "small", replace(lib, us=99.0)), index="earlier", started="2026-01-01T00:00:00")
    other_gpu = make_run(make_row("z", "small", lib), started="2026-01-01T01:00:00", device="GPU Y")
    first = make_run(make_row("a", "small", lib), make_row("b", "small", lib), started="2026-01-02T00:00:00")
    second = make_run(make_row("a", "small", replace(lib, us=30.0)), seed=8, started="2026-01-03T00:00:00")
    alike, rows = merge_runs([old, second, first, other_gpu])
    assert [r.seed for r in alike] == [8, 7] and {r.problem: r.ratio for r in rows} == {"a": pytest.approx(3.0), "b": pytest.approx(2.0)}
    assert merge_runs([]) == ([], [])


def test_a_record_keeps_everything_and_a_run_replaces_its_own_earlier_state(tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    assert read_runs(path) == []
    begun = make_run(make_row("a", "small", contender("lib", PEER, 20.0)))
    done = add_row(begun, make_row("b", "small", contender("lib", PEER, None, "unsupported", None)))
    write_runs(path, "toy", put_run(put_run([], begun), done))
    assert read_runs(path) == [done]
    assert json.loads(path.read_text())["runs"][0]["rows"][0]["peer"] == "lib"


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 1, "runs": [{}]}', '{"schema": 99, "runs": []}'])
def test_what_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "drawn.json").write_text(text)
    with pytest.raises(RecordError, match=r"drawn\.json"):
        read_runs(tmp_path / "drawn.json")


def test_seeds_that_were_used_are_known(tmp_path: Path) -> None:
    path = tmp_path / "seeds.json"
    note_use(path, SeedUse(3, POPULATION, "tuning of tiles", "notes"))
    note_use(path, SeedUse(3, POPULATION, "tuning of tiles", "notes"))
    note_use(path, SeedUse(4, NEIGHBOURS, "survey", "survey.json"))
    uses = read_uses(path)
    assert len(uses) == 2
    assert describe_uses(uses, [], 3, "i") == "tuning of tiles (notes)"
    assert describe_uses(uses, [], 4, "i") == "" == describe_uses(uses, [make_run()], 7, "i")
    assert "a page of an earlier frozen set (2026-01-01, commit abc)" in describe_uses(uses, [make_run()], 7, "another")
    path.write_text('[{"seed": 1}]')
    with pytest.raises(RecordError, match="not a ledger of seeds"):
        read_uses(path)


def test_the_page_leads_with_groups_and_says_when_a_seed_is_not_fresh() -> None:
    lib = contender("lib", PEER, 20.0)
    earlier = make_run(make_row("a", "small", lib), index="earlier")
    now = replace(
        make_run(make_row("a", "small", lib), make_row("b", "padded", replace(lib, us=4.0)), started="2026-01-02"), seed_note="tuning"
    )
    page = make_page(make_op(), [earlier, now])
    assert page.index("| small ones | 1 | 2.000 | 2.000 (a) | 100 % |") < page.index("## By library") < page.index("## padded rows")
    assert "seed 7 is NOT fresh, it was used before: tuning" in page and "seed 7, fresh" in page[page.index("## Earlier frozen sets") :]
    assert "| lib | 2 | 0.894 |" in page and "10.00 (0.5)" in page
    assert summarize(make_op(), []) == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_picture_has_a_row_per_group(width: int) -> None:
    lib = contender("lib", PEER, 20.0)
    results = group_rows([make_row("a", "small", lib), make_row("b", "padded", replace(lib, us=4.0)), make_row("c", "padded")], TITLES)
    drawing = Drawing(plot_drawn(results, "toy <on> GPU", width)).to_svg()
    texts = [t.text for t in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert {"toy <on> GPU", "small ones", "padded rows", "2.000", "0.400"} <= set(texts)


def test_who_is_timed() -> None:
    drawn = DrawnProblem(GROUPS[0], draw_problems(make_op(), 1, 0)[0].problem)
    kernel: Any = object()
    sealed, variants, peers = {"k": kernel, "k2": kernel}, {"honest": kernel, "atomic": kernel}, {"numpy": kernel, "stranger": kernel}
    chosen = FrozenChoice("k", "honest", "near", legal=("k", "k2"))

    def names(choice: FrozenChoice, own: str, as_variant: str, *, with_all: bool = False) -> list[str]:
        sealed_as = {"k2": "other"} | ({"k": as_variant} if as_variant else {})
        found = line_up(drawn, choice, own, sealed, sealed_as, variants, peers, with_all=with_all)
        return [f"{e.role} {e.name}" for e in found.entrants] + [found.judged]

    assert names(chosen, "honest", "honest") == ["frozen k", "peer numpy", "k"]
    assert names(chosen, "atomic", "honest") == ["frozen k", "own atomic", "peer numpy", "k"]
    assert names(chosen, "honest", "honest", with_all=True) == ["frozen k", "frozen k2", "variant atomic", "peer numpy", "k"]
    # The frozen kernel of the same name has other code by now.
    assert names(chosen, "honest", "") == ["frozen k", "own honest", "peer numpy", "k"]
    assert names(chosen, "honest", "", with_all=True) == ["frozen k", "own honest", "frozen k2", "variant atomic", "peer numpy", "k"]
    assert names(FrozenChoice(error="not frozen"), "atomic", "") == ["own atomic", "peer numpy", "atomic"]
    assert names(FrozenChoice(error="not frozen"), "", "") == ["variant honest", "variant atomic", "peer numpy", ""]


class DrawnBench(Bench):
    """An op of two groups on a fake GPU: the frozen kernel takes 40 us, the op's own variants 50, the library 100."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_emulated: bool = False) -> None:
        super().__init__(monkeypatch, folder, is_emulated=is_emulated)
        self.op = make_op()
        self.frozen_body: Callable[..., None] = honest
        self.frozen_us = 40.0
        self.asked: list[str] = []
        loaded = LoadedOp(self.op, folder)
        monkeypatch.setattr("harness.verbs.naming.find_op", lambda _: loaded)
        for name in ("run", "cliff_run"):
            monkeypatch.setattr(f"harness.compare.drawn.{name}.choose_frozen", self.choose, raising=False)
            monkeypatch.setattr(f"harness.compare.drawn.{name}.build_contenders", self.build_contenders)
            monkeypatch.setattr(f"harness.compare.drawn.{name}.find_project_root", lambda: folder)
        peer = Peer("numpy", "numpy", lambda: ToyKernel(self.device, self.run_slowly))
        monkeypatch.setattr("harness.compare.drawn.run.load_peers", lambda _: (peer, Peer("missing", "nowhere", self.refuse)))
        monkeypatch.setattr("harness.compare.drawn.seeds.find_project_root", lambda: folder)
        monkeypatch.setattr("harness.timing.timer.CudaInstruments", lambda: FakeInstruments(self.device))

    @staticmethod
    def refuse() -> Any:
        raise ImportError("no module named nowhere")

    def choose(self, op: Op, problems: Any, arch: str) -> list[FrozenChoice]:
        self.asked.append(arch)
        return [FrozenChoice("k", "frozen/fast", "surveyed", "the least", 40.0, ("k",)) for _ in problems]

    def build_contenders(self, session: Any, kernels: Any, variants: Any, say: Any) -> Any:
        results, binding = session.build(session.loaded.op.select_variants(variants), lambda b: None)
        opened = {b.variant.name: self.open_variant(self.op, binding, Path("x.so"), b.variant) for b in results}

        def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
            self.device.clock_us += self.frozen_us
            self.frozen_body(A=A, B=B, bias=bias, Y=Y, relu=relu)

        return Contenders({b.variant.name: b for b in results}, {"k": ToyKernel(self.device, body)}, {}, opened)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DrawnBench:
    return DrawnBench(monkeypatch, tmp_path)


def test_drawn_problems_are_timed_recorded_and_published(gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, err = run(capsys, "compare", "toy", "--drawn", "4", "--seed", "3", "--publish", str(out))
    assert code == 0, err
    assert "small ones" in text and "2.500" in text and "seed 3 is fresh" in text
    assert "peer missing left out" in text
    (found,) = read_runs(out / "drawn.json")
    assert len(found.rows) == 4 and {r.group for r in found.rows} == {"small", "padded"} and found.arch == "sm_90a"
    row = found.rows[0]
    assert row.ratio == pytest.approx(2.5, rel=0.01) and [c.role for c in row.contenders] == [FROZEN, OWN, PEER]
    assert all(c.error is not None and c.error <= 1 for c in row.contenders)
    assert set(found.code_hashes) == {c.name for c in row.contenders if c.role == OWN} and all(found.code_hashes.values())
    assert (out / "drawn.md").read_text().startswith("# toy on drawn problems") and (out / "drawn.svg").is_file()
    listed = json.loads(run(capsys, "report", "toy", "--run", "1", "--json")[1])
    assert {r["kind"] for r in listed} == {"drawn"} and len(listed) == 12 and all(len(r["samples"]) >= 20 for r in listed)
    assert "small of seed 3: 40" in run(capsys, "report", "toy", "--run", "1")[1]


def test_own_kernels_are_timed_with_no_library_beside_them(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, err = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--regret", "--peer", "none", "--json")
    found = json.loads(text)
    assert code == 0 and "peer missing" not in err and found["command"].endswith("--regret --peer none")
    assert all({c["role"] for c in row["contenders"]} == {FROZEN, OWN, VARIANT} and row["ratio"] is None for row in found["rows"])


def test_groups_and_variants_that_are_named_are_all_that_is_drawn_and_timed(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ["compare", "toy", "--drawn", "3", "--seed", "3", "--peer", "none", "--group", "padded"]
    code, text, err = run(capsys, *drawn, "--regret", "--variant", "honest", "--json")
    found = json.loads(text)
    assert code == 0 and found["command"].endswith("--peer none --group padded --variant honest"), err
    assert [r["group"] for r in found["rows"]] == ["padded"] * 3
    assert all({c["name"] for c in row["contenders"]} == {"k", "honest"} for row in found["rows"])
    assert run(capsys, *drawn, "--variant", "honest")[2].startswith("harness: --variant says which variants --drawn times")
    assert "it has: small, padded" in run(capsys, *drawn[:-1], "large")[2]
    assert "--group and --use are for drawn problems" in run(capsys, "compare", "toy", "--group", "small")[2]


def test_libraries_that_calls_may_get_are_examined_where_they_were_timed(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = {("numpy", "toy"): ADAPTER}
    monkeypatch.setattr("harness.compare.drawn.library_facts.find_adapter", lambda *names: adapters.get(names))
    monkeypatch.setattr("harness.compare.drawn.library_facts.open_cublaslt", lambda: SimpleNamespace(version=130002))
    peer = Peer("numpy", "numpy", lambda: ToyKernel(gpu.device, gpu.run_slowly, workspace=64))
    monkeypatch.setattr("harness.compare.drawn.run.load_peers", lambda _: (peer,))
    code, _, err = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--publish", str(tmp_path))
    assert code == 0, err
    facts = {"version": 130002, "workspace_bytes": 64, "deterministic": True, "capture_safe": True, "checked": 1, "kinds": {"True": ""}}
    assert read_runs(tmp_path / "drawn.json")[0].libraries == {"numpy": facts}, "of padded rows nothing is asked"
    said = "numpy 13.0.2: the same bits again and right as a CUDA graph, up to 64 bytes of workspace, right on all inputs with True."
    assert said in (tmp_path / "drawn.md").read_text()


def test_a_library_is_launched_again_and_judged_on_all_inputs(gpu: DrawnBench) -> None:
    session: Any = SimpleNamespace(loaded=LoadedOp(gpu.op, Path()), device=gpu.device)
    problems = [Problem({"M": 5, "N": 8, "K": 4}, {"relu": relu}) for relu in (False, True)]
    right = {"workspace_bytes": 0, "deterministic": True, "capture_safe": True, "checked": 2}
    assert examine_library(session, ToyKernel(gpu.device, honest), problems) == right
    assert judge_kinds(session, ToyKernel(gpu.device, honest), problems, "relu") == {"False": "", "True": ""}

    count = itertools.count()

    def differ(Y: FakeArray, **rest: Any) -> None:
        honest(Y=Y, **rest)
        Y.host[...] = np.nextafter(Y.host, np.float32(9.0) if next(count) % 2 else Y.host)

    assert examine_library(session, ToyKernel(gpu.device, differ), problems) == right | {"deterministic": False}

    def lose(Y: FakeArray, relu: bool, **rest: Any) -> None:
        honest(Y=Y, relu=relu, **rest)
        Y.host[...] = np.fmax(Y.host, 0.0) if relu else Y.host

    kinds = judge_kinds(session, ToyKernel(gpu.device, lose), problems, "relu")
    assert kinds["False"] == "" and kinds["True"].startswith("nonfinite inputs, M5_N8_K4-relu: Y [5x8]: ")


def test_runs_add_up_to_one_page(gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for seed in ("3", "4"):
        assert run(capsys, "compare", "toy", "--drawn", "2", "--seed", seed, "--publish", str(tmp_path / "out"))[0] == 0
    page = (tmp_path / "out" / "drawn.md").read_text()
    assert "seed 3, fresh; 2 of 2 problems" in page and "seed 4, fresh; 2 of 2 problems" in page and "| all | 4 |" in page


def test_a_wrong_kernel_is_refused_and_the_command_fails(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.frozen_body, gpu.frozen_us = give_wrong, 1.0
    code, text, _ = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--json")
    rows = json.loads(text)["rows"]
    assert code == 1
    assert [r["ratio"] for r in rows] == [None, None] and "wrong after it was timed" in rows[0]["contenders"][0]["reason"]


def test_a_library_with_another_output_is_no_library(gpu: DrawnBench, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def cheat(**arguments: Any) -> None:
        gpu.device.clock_us += 1.0
        give_wrong(**arguments)

    peer = Peer("numpy", "numpy", lambda: ToyKernel(gpu.device, cheat))
    monkeypatch.setattr("harness.compare.drawn.run.load_peers", lambda _: (peer,))
    code, text, _ = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3")
    assert code == 0 and "no library was timed" in text


def test_no_problem_is_begun_after_the_time_is_spent(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "compare", "toy", "--drawn", "8", "--seed", "3", "--seconds", "0")
    assert code == 0 and "1 of 8 problems" in text


def test_what_was_timed_before_an_interrupt_is_kept(gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    num_runs = 0

    def interrupt(**arguments: Any) -> None:
        nonlocal num_runs
        num_runs += 1
        if len(read_runs(tmp_path / "out" / "drawn.json") and read_runs(tmp_path / "out" / "drawn.json")[0].rows) == 2:
            raise KeyboardInterrupt
        honest(**arguments)

    gpu.frozen_body = interrupt
    code, _, _ = run(capsys, "compare", "toy", "--drawn", "6", "--seed", "3", "--publish", str(tmp_path / "out"))
    assert code == 130
    assert len(read_runs(tmp_path / "out" / "drawn.json")[0].rows) == 2 and "2 of 6 problems" in (tmp_path / "out" / "drawn.md").read_text()


def test_a_seed_that_is_used_for_more_is_written_into_the_ledger(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = run(capsys, "compare", "toy", "--drawn", "1", "--seed", "3", "--use", "tuning of tiles")[1]
    assert "seed 3 is NOT fresh, it was used before: tuning of tiles, this run" in text
    assert [u.use for u in read_uses(tmp_path / "profiles" / "toy" / "seeds.json")] == ["tuning of tiles"]
    assert "seed 3 is NOT fresh, it was used before: tuning of tiles" in run(capsys, "compare", "toy", "--drawn", "1", "--seed", "3")[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--seed", "3"), "are for drawn problems: with --drawn N"),
        (("--cliffs",), "are for drawn problems: with --drawn N"),
        (("--drawn", "3", "--goal", "x"), "--drawn goes only with"),
        (("--drawn", "3", "--base", "honest"), "--drawn goes only with"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    code, _, err = run(capsys, "compare", "toy", *words)
    assert code == 2 and text in err


def test_without_a_gpu_the_decisions_are_shown_with_modelled_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    DrawnBench(monkeypatch, tmp_path, is_emulated=True)
    code, text, err = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--seconds", "0", "--json")
    rows = json.loads(text)["rows"]
    assert code == 0, err
    assert [(r["kernel"], r["own"], r["kernel_model_us"]) for r in rows] == [("k", "honest", None)] * 2
    assert "chooses another variant on 2" in run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--seconds", "0")[1]


def test_the_framework_decides_and_its_failure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    op = find_op("softmax").op
    problems = [d.problem for d in draw_problems(op, 3, 5)]
    found = frozen_choice.choose_frozen(op, problems, "sm_90a")
    assert all(c.kernel in c.legal and c.how and not c.error for c in found)
    assert frozen_choice.choose_frozen(op, problems, "sm_90a", tmp_path) == [FrozenChoice(error="softmax is not frozen")] * 3
    assert "nothing is frozen for compute capability 7.0" in frozen_choice.choose_frozen(op, problems, "sm_70")[0].error
    with pytest.raises(FrozenError, match="did not decide: aicf: arch='nonsense'"):
        frozen_choice.choose_frozen(op, problems, "nonsense")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", ""))
    with pytest.raises(FrozenError, match="0 answers to 3 calls"):
        frozen_choice.choose_frozen(op, problems, "sm_90a")


def test_a_library_that_there_is_not_is_refused(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "compare", "toy", "--drawn", "2", "--peer", "nope")
    assert code == 2 and "op toy has no such peer; it has: numpy, missing" in err


def test_an_op_without_population_says_so(gpu: DrawnBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = LoadedOp(make_toy(), Path())
    monkeypatch.setattr("harness.verbs.naming.find_op", lambda _: loaded)
    code, _, err = run(capsys, "compare", "toy", "--drawn", "2")
    assert code == 2 and "no population to draw from" in err
    with pytest.raises(SpecError):
        draw_problems(make_toy(), 1, 1)


def test_the_report_leads_with_drawn_problems(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3")[0] == 0
    runs = read_runs(tmp_path / ".aicf" / "drawn" / "toy" / "drawn.json")
    monkeypatch.setattr("harness.records.frames.find_op", lambda name: LoadedOp(gpu.op, tmp_path))
    frame = load("toy", "store")
    assert isinstance(frame, pd.DataFrame) and set(frame.kind) == {"drawn"}
    html = write_page(gpu.op, frame, runs)
    assert '<section id="drawn">' in html and "2.500" in html and "seed 3, fresh" in html


def test_the_goals_page_and_the_terminals_report_lead_with_drawn_problems(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.compare.drawn.record.find_project_root", lambda: tmp_path)
    assert run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3")[0] == 0
    text = run(capsys, "report", "toy")[1]
    assert text.index("drawn problems: geometric mean") < text.index("seed 3, fresh")
    assert lead_goals(gpu.op, None)[0] == "## Drawn problems, which nobody listed"
    assert lead_goals(gpu.op, tmp_path / "elsewhere")[0] == "## Drawn problems, which nobody listed"


def test_the_regret_is_to_the_fastest_of_all_that_serve(gpu: DrawnBench, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.frozen_us = 60.0
    code, text, _ = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--regret", "--json")
    row = json.loads(text)["rows"][0]
    assert code == 0 and [c["role"] for c in row["contenders"]] == [FROZEN, OWN, "variant", PEER]
    assert row["regret"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(("chooses", "judged_as"), [(True, "the op's own choice"), (False, "the fastest of its variants")])
def test_an_op_that_is_not_frozen_is_judged_by_what_it_has(
    gpu: DrawnBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chooses: bool, judged_as: str
) -> None:
    loaded = LoadedOp(make_op() if chooses else replace(make_op(), choose=None), tmp_path)
    monkeypatch.setattr("harness.verbs.naming.find_op", lambda _: loaded)
    monkeypatch.setattr("harness.compare.drawn.run.choose_frozen", lambda op, given, arch: [FrozenChoice(error="not frozen")] * len(given))
    code, text, err = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", "--json")
    rows = json.loads(text)["rows"]
    assert code == 0, err
    assert {r["judged_as"] for r in rows} == {judged_as} and all(r["ratio"] == pytest.approx(2.0, rel=0.02) for r in rows)
    assert len(rows[0]["contenders"]) == (2 if chooses else 3)


def test_kernels_are_built_as_they_are_modelled_and_no_problem_is_begun_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []

    def build(session: Any, names: list[str], say: Any) -> dict[str, Any]:
        built.append(names)
        return dict.fromkeys(names)

    monkeypatch.setattr(without_gpu, "_build", build)
    monkeypatch.setattr(without_gpu, "model_us", lambda *_: 3.0)
    session: Any = SimpleNamespace(settings=SimpleNamespace(jobs=2), device=None, target=None, loaded=SimpleNamespace(op=None))
    problems = [d.problem for d in draw_problems(make_op(), 3, 0)]
    wanted = list(zip(problems, (["a"], ["a", "b"], ["c", "d", "e"]), strict=True))
    found = list(without_gpu.model_plan(session, wanted, float("inf"), lambda _: None))
    assert built == [["a", "b"], ["c", "d", "e"]] and found[1] == (problems[1], {"a": 3.0, "b": 3.0})
    assert list(without_gpu.model_plan(session, wanted, 0.0, lambda _: None)) == []
    assert without_gpu.is_frozen_name("naive__threads64__7036f2d1") and not without_gpu.is_frozen_name("naive/threads64")


@pytest.mark.parametrize(("option", "value"), [("--publish", "out"), ("--use", "tuning")])
def test_what_only_times_can_fill_is_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    DrawnBench(monkeypatch, tmp_path, is_emulated=True)
    given = str(tmp_path / value) if option == "--publish" else value
    code, _, err = run(capsys, "compare", "toy", "--drawn", "2", "--seed", "3", option, given)
    assert code == 2 and f"{option} goes with times, and without a GPU nothing is timed" in " ".join(err.split())
