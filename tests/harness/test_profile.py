"""``profile`` from end to end: on the emulated device, and with programs that say what NVIDIA's tools said on an H200."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from device.interface import Device, UnavailableError
from harness.__main__ import main
from harness.discover import find_op
from harness.errors import ToolError
from harness.profiling import run as run_module
from harness.profiling.ncu import check_run, make_filter, profile_launch
from harness.profiling.run import Tool, profile_variant
from harness.profiling.tools import NCU, Tools
from harness.records import load
from harness.records.database import Records
from harness.records.facts import ResultFacts
from harness.report.pictures.page import write_page
from tests.harness.test_profile_pages import FOLDER, KERNELS, read_page
from tests.harness.test_published import GPU
from tests.harness.test_records import start

OP = find_op("softmax").op
VARIANT, PROBLEM = OP.select_variants(["warp_per_row/rows1"])[0], OP.select_problems("bench")[0]
PROFILED = "==PROF== Profiling softmax_warp\n==PROF== Report: a.ncu-rep\n"
DENIED = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.\n"
    "For instructions on enabling permissions and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)
EMPTY = "==WARNING== No kernels were profiled.\n==WARNING== Note that specified NVTX include expressions match only push/pop ranges.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    monkeypatch.setattr("harness.profiling.tools._FOLDERS", ())
    return found


def install(folder: Path, name: str, body: str) -> None:
    """Write a program that logs its arguments and runs some Python."""
    path = folder / name
    log = folder / "calls.txt"
    head = f"#!{sys.executable}\nimport sys, time\nopen({str(log)!r}, 'a').write(' '.join([{name!r}, *sys.argv[1:]]) + chr(10))\n"
    path.write_text(head + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def list_calls(folder: Path) -> list[str]:
    return (folder / "calls.txt").read_text().splitlines()


def install_ncu(folder: Path, profiled: str = PROFILED, raw: str | None = None, status: int = 0) -> None:
    (folder / "raw").write_text(read_page("softmax-raw") if raw is None else raw)
    (folder / "source").write_text(read_page("softmax-source"))
    install(
        folder,
        "ncu",
        f"""
words = sys.argv
if "--version" in words: print("NVIDIA Nsight Compute\\nVersion 2025.3.1.0 (build 1)")
elif "--import" in words: print(open({str(folder)!r} + "/" + words[words.index("--page") + 1]).read(), end="")
else: print({profiled!r}); sys.exit({status})
""",
    )


def install_sanitizer(folder: Path, text: str = "========= ERROR SUMMARY: 0 errors", status: int = 0) -> None:
    install(folder, "compute-sanitizer", f"print({text!r}); sys.exit({status})\n")


class FakeSession:
    """What the tools' runs need of a session: the op, and where results go."""

    def __init__(self, url: str) -> None:
        self.records = Records(url)
        self.run_id = start(self.records, GPU)
        self.loaded = find_op("softmax")

    def record(self, build: Any, **fields: Any) -> int:
        return self.records.add_results(self.run_id, [ResultFacts(op="softmax", key="k", **fields)])[0]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    url = f"sqlite:///{tmp_path / 'own.sqlite'}"
    monkeypatch.setenv("AICF_RECORDS_URL", url)
    found = FakeSession(url)
    yield found
    found.records.close()


def profile(session: Any, tmp_path: Path, tools: Tools | None = None, wanted: tuple[Tool, ...] = tuple(Tool)) -> run_module.Profile:
    build: Any = SimpleNamespace(variant=VARIANT)
    return profile_variant(session, tools or Tools(20.0), build, PROBLEM, wanted, tmp_path / "profiles")


def test_every_tool_looks_and_all_of_it_is_recorded(session: Any, folder: Path, tmp_path: Path) -> None:
    install_ncu(folder)
    install_sanitizer(folder)
    found = profile(session, tmp_path)
    assert found.summary is not None and found.summary.bound.startswith("near the bound of L2")
    assert list(found.checks.values()) == ["clean"] * 4
    assert list(found.skipped) == ["nsys"] and "install NVIDIA Nsight Systems" in found.skipped["nsys"]
    assert found.broken == {} and found.num_errors == 0
    ncu = next(call for call in list_calls(folder) if "--export" in call)
    assert "--clock-control none --cache-control none" in ncu
    assert f"--nvtx --nvtx-include {make_filter('softmax', VARIANT.name, PROBLEM.name)} " in ncu
    assert ncu.endswith(f"-m harness.profiling.target softmax {VARIANT.name} {PROBLEM.name} 1 guarded")
    checks = [call for call in list_calls(folder) if call.startswith("compute-sanitizer")]
    assert [call.split()[2] for call in checks] == ["memcheck", "racecheck", "initcheck", "synccheck"]
    assert all(call.endswith("1 exact") for call in checks)
    recorded = {r.kind: r for r in session.records.list_results()}
    assert recorded["sanitizer"].status == "passed"
    figures = recorded["profile"].figures
    assert figures["tool"] == "ncu 2025.3.1.0" and figures["profiled_us"] == pytest.approx(82.144)
    metrics = figures["kernels"][0]["metrics"]
    assert metrics["dram__bytes_read.sum"] == 136389376.0 and 200 < len(metrics) < 1200
    assert figures["lines"][0] | {"text": "", "stalls": {}} == {"file": "kernels.cu", "line": 63, "text": "", "samples": 4772, "stalls": {}}
    page = write_page(OP, load("softmax", "store"))
    assert "near the bound of L2" in page and "kernels.cu:63 49 %" in page


def test_the_filter_names_the_range_of_the_launch() -> None:
    assert make_filter("op", "k/bm1", "M1-act=none") == r"aicf@op\/k:bm1\/M1-act=none\/profile/"


def test_no_permission_is_said_once_and_the_rest_goes_on(session: Any, folder: Path, tmp_path: Path) -> None:
    install_ncu(folder, DENIED, status=1)
    install_sanitizer(folder)
    tools = Tools(20.0)
    for _ in range(2):
        found = profile(session, tmp_path, tools)
        assert "ERR_NVGPUCTRPERM" in found.skipped["ncu"] and "NVreg_RestrictProfilingToAdminUsers=0" in found.skipped["ncu"]
        assert len(found.checks) == 4 and found.summary is None
    assert sum(call.startswith("ncu") for call in list_calls(folder)) == 1, "probed once"


def test_a_machine_that_passes_no_counters_through_is_a_refusal(session: Any, folder: Path, tmp_path: Path) -> None:
    install_ncu(folder, "==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", status=1)
    found = profile(session, tmp_path, wanted=(Tool.NCU,))
    assert "ncu cannot profile on this machine: Failed to initialize the profiler" in found.skipped["ncu"]


@pytest.mark.parametrize(
    ("profiled", "raw", "status", "message"),
    [
        (EMPTY, None, 0, "met no kernel"),
        ("==ERROR== The application returned an error code (11).\n", None, 11, "ended with status 11"),
        ("", None, 0, "ended with status 0"),
        (PROFILED, read_page("softmax-raw")[:90000], 0, "cut off"),
        (PROFILED, "", 0, "has no table"),
    ],
)
def test_what_ncu_says_amiss_is_an_error_and_no_record(
    session: Any, folder: Path, tmp_path: Path, profiled: str, raw: str | None, status: int, message: str
) -> None:
    install_ncu(folder, profiled, raw, status)
    install_sanitizer(folder)
    found = profile(session, tmp_path)
    assert message in found.broken["ncu"] and found.summary is None
    assert len(found.checks) == 4, "the other tools go on"
    assert [r.kind for r in session.records.list_results()] == ["sanitizer"]


def test_a_tool_that_hangs_is_ended(session: Any, folder: Path, tmp_path: Path) -> None:
    install(folder, "ncu", "time.sleep(60)\n")
    started = time.monotonic()
    found = profile(session, tmp_path, Tools(1.0), (Tool.NCU,))
    assert time.monotonic() - started < 20 and "did not end within 1 s" in found.broken["ncu"]


def test_the_sanitizer_gets_a_small_problem_that_the_variant_serves() -> None:
    op = find_op("gemm_bias_act").op
    (variant,) = op.select_variants(["tf32/bm128_bn64_stages7_clusterm1_clustern1_pingpong0_group8"])
    found = run_module._find_small_problem(op, variant, "M8192_N8192_K8192-act=relu-precision=tf32-b_layout=nk-with_bias")
    assert found is not None and found.attributes["precision"] == "tf32" and {"emulated", "verify"} & set(found.suites)
    named = [p for p in op.select_problems("verify") if op.meets_domain(variant, p)][-1]
    assert named is not found and run_module._find_small_problem(op, variant, named.name) is named
    nothing = replace(op, goals=(), problems=tuple(p for p in op.problems if p.attributes.get("precision") != "tf32"))
    assert run_module._find_small_problem(nothing, variant, named.name) is None


def test_errors_of_the_sanitizer_are_recorded_as_failed(session: Any, folder: Path, tmp_path: Path) -> None:
    install_sanitizer(folder, (FOLDER / "memcheck-bad.txt").read_text(), 86)
    found = profile(session, tmp_path, wanted=(Tool.SANITIZER,))
    assert found.num_errors == 4 * 65
    (recorded,) = session.records.list_results()
    assert recorded.status == "failed" and "Invalid __global__ write" in recorded.reason


def test_a_problem_that_is_not_served_is_said_and_not_profiled(session: Any, folder: Path, tmp_path: Path) -> None:
    install_ncu(folder, "harness: not served: columns = 1024: must not exceed 128\n" + EMPTY, status=1)
    install_sanitizer(folder)
    found = profile(session, tmp_path)
    assert found.unserved == "columns = 1024: must not exceed 128" and session.records.list_results() == []


def test_nsight_systems_tells_each_kernels_time(session: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "kernels").write_text(KERNELS)
    install(
        folder,
        "nsys",
        f"""
if sys.argv[1] == "stats": print(open({str(folder / "kernels")!r}).read())
else: open(sys.argv[sys.argv.index("--output") + 1], "w").write("report")
""",
    )
    found = profile(session, tmp_path, wanted=(Tool.NSYS,))
    assert found.timeline[0] == "void a<1>(int, float): 3 launches, median 1.01 µs" and found.broken == {}
    install(folder, "nsys", "sys.exit(0)\n")
    (tmp_path / "profiles" / "softmax").rename(tmp_path / "elsewhere")
    assert "no report" in profile(session, tmp_path, wanted=(Tool.NSYS,)).broken["nsys"]


def test_a_report_that_ncu_made_and_cannot_read_is_an_error(folder: Path, tmp_path: Path) -> None:
    install(folder, "ncu", f"print({PROFILED!r})\nsys.exit(1 if '--import' in sys.argv else 0)\n")
    with pytest.raises(ToolError, match="cannot read its own report"):
        profile_launch(Tools(20.0), "softmax", VARIANT.name, PROBLEM.name, tmp_path / "a.ncu-rep")


def test_a_missing_tool_says_how_to_get_it(folder: Path) -> None:
    with pytest.raises(UnavailableError, match="ncu is not installed; install NVIDIA Nsight Compute"):
        Tools().find(NCU)
    check_run(Tools(), 0, PROFILED)


def test_the_emulated_device_profiles_by_its_counters(
    emulated_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'own.sqlite'}")
    with pytest.raises(SystemExit) as ended:
        main(["profile", "softmax", "--variant", "naive/threads64", "--problem", "rows5_columns1023", "--device", "emulated", "--json"])
    assert ended.value.code == 0
    (found,) = json.loads(capsys.readouterr().out)["profiles"]
    assert found["summary"]["bound"].startswith("modelled, not measured")
    assert any("times the bytes they ask for" in each for each in found["summary"]["advice"])
    assert any(line.startswith("kernels.cu:") for line in found["summary"]["lines"])
    frame = load("softmax", "store")
    assert list(frame.kind) == ["profile"] and frame.figures[0]["tool"] == "emulated device"
    assert frame.median_us.isna().all(), "no time of a GPU"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tool", "vtune"], "must be one of ncu, sanitizer, nsys"),
        (["--tool", "ncu", "--device", "emulated"], "the emulated device counts by itself"),
        (["--variant", "nothing"], "no kernel 'nothing'"),
    ],
)
def test_wrong_use_is_said(
    emulated_device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'own.sqlite'}")
    with pytest.raises(SystemExit) as ended:
        main(["profile", "softmax", *words])
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_the_process_that_a_tool_looks_at_launches_the_variant(emulated_device: Device) -> None:
    words = ["softmax", "naive/threads64", "rows5_columns1023", "1", "exact"]
    command = [sys.executable, "-m", "harness.profiling.target", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    command[4:6] = ["row_in_registers/threads2_rows64_vectors2", "rows4096_columns1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 1 and "harness: not served: columns = 1000" in done.stderr
