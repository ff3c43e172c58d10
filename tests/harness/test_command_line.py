"""The command line: exit codes and messages for good and bad use, and the scaffold of a new op."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import commands
from harness.discover import find_op, find_ops, load_op
from harness.scaffold import create_op
from harness.spec import SpecError, Tunable
from tests.harness.test_session import run


def harness(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments], capture_output=True, text=True, check=False, env=os.environ | env, timeout=120
    )


def test_list_names_every_op() -> None:
    done = harness("list", "--json")
    assert done.returncode == 0
    assert {"gemm_bias_act", "softmax"} <= {row["name"] for row in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "softmaxx"), "did you mean 'softmax'?"),
        (("build", "softmax", "--variant", "fast"), "has no kernel 'fast'; it has: naive"),
        (("build", "softmax", "--variant", "naive/threads63"), "threads=63 is not one of"),
        (("build", "softmax", "--variant", "naive/colour3"), "unknown tunable colour"),
        (("build", "softmax", "--target", "h900"), "unknown target 'h900'; known targets: h200"),
        (("show", "softmax", "naive"), "names 2 variants"),
        (("new", "Not-a-name"), "use lower-case letters"),
        (("new", "softmax"), "exists already"),
        (("new", "common"), "is taken"),
        (("new", "fresh", "--kind", "scan"), "--kind scan: must be one of elementwise, reduction, gemm"),
        (("verify", "softmax", "--problem", "rows0"), "op softmax has no problem 'rows0'"),
        (("verify", "softmax", "--problem", "rows0*"), "op softmax has no problem that matches 'rows0*'\n"),
        (("build", "softmax", "--variant", "*/nothing*"), "no listed variant that matches '*/nothing*'"),
        (("nonsense",), "No such command"),
        (("build", "softmax", "--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_use_exits_with_2_and_says_what_there_is(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == 2, error
    assert message in error
    assert "Traceback" not in error


def test_what_is_wrong_stands_below_the_list_of_what_there_is() -> None:
    lines = harness("verify", "softmax", "--problem", "rows0").stderr.splitlines()
    assert len(lines) > 10 and "has no problem 'rows0'" in lines[-1]


def test_a_pattern_names_problems_of_the_verbs_own_suite_first() -> None:
    op = find_op("gemm_bias_act").op
    few = op.select_problems("bench", ["M1_*"])
    assert len(few) > 3 and all(p.sizes["M"] == 1 and "bench" in p.suites for p in few)
    assert {p.name for p in op.select_problems("emulated", ["M1_*"])} == {p.name for p in op.problems if p.sizes["M"] == 1}
    assert op.select_problems("emulated", ["M200_N130_K77*", "M200_N130_K77-act=gelu_tanh-with_bias"]) == op.select_problems("emulated")[2:]


def test_a_pattern_names_listed_variants() -> None:
    op = find_op("gemm_bias_act").op
    assert op.select_variants(["*/bm64_*tn4"]) == op.select_variants(
        ["reg_tiled/bm64_bn64_bk16_tm4_tn4", "vectorised/bm64_bn64_bk16_tm4_tn4", "warp_tiled/bm64_bn64_bk16_wm32_wn16_tm4_tn4"]
    )


def test_a_wrong_device_is_named_with_the_choices() -> None:
    done = harness("doctor", AICF_DEVICE="quantum")
    assert "quantum" in done.stdout + done.stderr and "auto, cuda, emulated" in done.stdout + done.stderr
    assert done.returncode in (2, 3)


def test_no_compiler_is_not_available_with_the_remedy(tmp_path: Path) -> None:
    done = harness("build", "softmax", PATH=str(tmp_path), CUDA_HOME=str(tmp_path))
    assert done.returncode == 3
    assert "g++ is not on the PATH; install it" in done.stderr


VERBS = sorted(m.name for m in pkgutil.iter_modules(commands.__path__) if m.name != "options")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_that_fit_a_narrow_terminal(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0 and "Examples:" in out and f"harness {verb}" in out
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_a_new_op_is_a_whole_op_under_its_own_name(tmp_path: Path) -> None:
    folder = create_op("fused_scale", ops_dir=tmp_path)
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "api.hpp", "kernels.cu", "launcher.cu", "op.py", "opset.py", "pybind.cpp", "test_fused_scale.py",
    ]  # fmt: skip
    assert "@" not in "".join(p.read_text() for p in folder.iterdir() if p.suffix != ".py")
    op = find_op("fused_scale", tmp_path).op
    assert op.name == "fused_scale" and len(op.variants) == 4
    with pytest.raises(SpecError, match="exists already"):
        create_op("fused_scale", ops_dir=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["fused_scale"]


@pytest.mark.parametrize(("name", "language"), [("switch", "C++"), ("double", "C++"), ("lambda", "Python")])
def test_an_op_is_not_named_like_a_word_of_its_languages(tmp_path: Path, name: str, language: str) -> None:
    with pytest.raises(SpecError, match=rf"'{name}' is a keyword of {re.escape(language)}; choose another, e.g. {name}_op"):
        create_op(name, ops_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_op_that_is_just_being_written_is_not_found(tmp_path: Path) -> None:
    (tmp_path / ".fused-x1").mkdir()
    (tmp_path / ".fused-x1" / "op.py").write_text("half")
    create_op("whole", ops_dir=tmp_path)
    assert list(find_ops(tmp_path)) == ["whole"]


def test_show_gives_json() -> None:
    done = harness("show", "softmax", "naive/threads128", "--ptx", "--log", "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 0 and shown["variant"] == "naive/threads128" and shown["resources"]["registers"] > 0
    assert ".entry" in shown["ptx"] and "registers" in shown["log"] and "sass" not in shown


def test_show_without_a_variant_lists_those_that_there_are() -> None:
    names = [v.name for v in find_op("softmax").op.variants]
    done = harness("show", "softmax")
    assert done.returncode == 0 and set(names) <= {line.strip() for line in done.stdout.splitlines()}
    assert json.loads(harness("show", "softmax", "--json").stdout) == {"op": "softmax", "variants": names}
    done = harness("show", "softmax", "--ptx")
    assert done.returncode == 2 and "`show softmax` lists those of the op" in done.stderr


def test_an_op_file_that_cannot_be_run_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "op.py").write_text("OP = undefined\n")
    with pytest.raises(SpecError, match=r"op\.py cannot be loaded: NameError"):
        load_op(tmp_path / "bad")
    (tmp_path / "bad" / "op.py").write_text("OP = 3\n")
    with pytest.raises(SpecError, match="must bind OP"):
        load_op(tmp_path / "bad")


def test_a_variant_id_names_each_tunable_once() -> None:
    kernel = find_op("gemm_bias_act").op.find_kernel("naive")
    with pytest.raises(SpecError, match="tunable bm is given twice"):
        kernel.parse_variant("bm16_bm32_bn16")
    with pytest.raises(SpecError, match="cannot read '16' in variant"):
        kernel.parse_variant("bm16_16")


def test_a_tunable_name_that_would_not_read_back_is_refused() -> None:
    with pytest.raises(SpecError, match="only lower-case letters"):
        Tunable("num_stages", (2,), "stages")


@pytest.mark.parametrize("verb", ["compare", "report", "sweep"])
def test_examples_are_explained(verb: str) -> None:
    lines = harness(verb, "--help").stdout.split("Examples:\n")[1].split("\n\n")[0].splitlines()
    assert lines[0].lstrip().startswith("#") and sum(f"harness {verb} " in line for line in lines) >= 4


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("report", "softmax", "--published", "--html"), "--html"),
        (("sweep", "softmax", "--save"), "--save"),
        (("inspect", "transpose", "--variant", "naive", "--html"), "--html"),
    ],
)
def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path: Path, arguments: tuple[str, ...], option: str) -> None:
    (tmp_path / "file").write_text("")
    done = harness(*arguments, str(tmp_path / "file" / "out"), AICF_RECORDS_URL=f"sqlite:///{tmp_path / 'own.sqlite'}")
    assert done.returncode == 2, done.stderr
    assert f"{option} {tmp_path}/file/out: nothing can be written there" in done.stderr and "Traceback" not in done.stderr


def test_only_the_verb_that_is_called_is_imported() -> None:
    script = "import sys; from harness.__main__ import build_app; build_app(sys.argv[1:]); print(*sys.modules)"
    help_alone, listing = (
        set(subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True).stdout.split())
        for words in (["--help"], ["list", "softmax"])
    )
    assert {m for m in help_alone if m.startswith("harness.")} <= {"harness.__main__", "harness.commands", "harness.errors"}
    assert "harness.commands.list" in listing and "harness.commands.bench" not in listing
