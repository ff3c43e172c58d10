"""Every verb with every kind of wrong value: exit code 2 (3 where a remedy is a machine's), one message that names what was wrong."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import harness.compare.goals_run  # noqa: F401 - now, and not while another test has replaced what it imports
from harness import commands
from harness.records.database import Records
from tests.harness.test_session import run

VERBS = {m.name for m in pkgutil.iter_modules(commands.__path__) if m.name != "options"}
OP, VARIANT = "softmax", "naive/threads64"
# The verb and its words, then what the message must name. {folder} is a folder, {file} a file that holds no JSON, {json} one that holds
# another document, {deep} one that no reader can follow; {nothing} is not there.
CASES: tuple[tuple[str, str], ...] = (
    ("bench softmaxx", "did you mean 'softmax'"),
    ("bench softmax --variant nope", "'nope'"),
    ("bench softmax --problem nope", "'nope'"),
    ("bench softmax --device nope", "nope"),
    ("bench softmax --target nope", "nope"),
    ("bench softmax --jobs 0", "--jobs"),
    ("build nope", "'nope'"),
    ("build softmax --variant naive/threads64_threads64", "given twice"),
    ("build softmax --target nope", "nope"),
    ("compare nope", "'nope'"),
    ("compare gemm_bias_act --goal nope", "nope"),
    ("compare gemm_bias_act --variant nope", "'nope'"),
    ("compare softmax --base nope", "'nope'"),
    ("compare softmax --base naive", "exact name"),
    ("compare softmax --base naive/threads64 --mode warm", "--mode warm"),
    ("compare softmax --base naive/threads64 --problem nope", "'nope'"),
    ("compare softmax --base naive/threads64 --margin 99", "--margin"),
    ("compare softmax --base naive/threads64 --confidence 0", "--confidence"),
    ("compare softmax --record 1", "--record"),
    ("compare softmax --record 1 --record 999999", "999999"),
    ("compare softmax --record one --record two", "--record"),
    ("compare softmax --published", "--published"),
    ("compare softmax --goal decode --base naive/threads64", "--goal"),
    ("compare softmax --publish {file}/x", "--publish"),
    ("crosscheck softmax", "--save"),
    ("crosscheck softmax --against {nothing}", "--against"),
    ("crosscheck softmax --save {folder}", "--save"),
    ("crosscheck softmax --save {file}/x.npz", "--save"),
    ("crosscheck softmax --save {folder}/x.npz --variant nope", "'nope'"),
    ("deploy nope", "'nope' is not frozen"),
    ("doctor --device nope", "nope"),
    ("frozen nope", "nope"),
    ("frozen list nope", "nope"),
    ("frozen list softmax --bucket x", "--bucket"),
    ("frozen list softmax --quick", "--quick"),
    ("frozen verify nope", "nope"),
    ("frozen verify softmax --quick --kernel nope", "--kernel nope"),
    ("frozen verify softmax --to x", "--to"),
    ("frozen history", "needs an op"),
    ("frozen history softmax --message x", "--message"),
    ("frozen demote softmax", "--bucket"),
    ("frozen demote softmax --bucket nope", "nope"),
    ("frozen demote softmax --all --kernel nope", "nope"),
    ("frozen demote softmax --all --json", "--json"),
    ("frozen rollback softmax", "--to"),
    ("frozen rollback softmax --to nope", "nope"),
    ("frozen recover softmax --all", "--all"),
    ("init", "is a checkout of AICF"),
    ("inspect softmax --variant nope", "'nope'"),
    ("inspect softmax --variant naive", "naive"),
    ("inspect softmax --variant naive/threads64 --problem nope", "'nope'"),
    ("inspect softmax --variant naive/threads64 --lines 0", "--lines"),
    ("inspect softmax --variant naive/threads64 --html {file}/x", "--html"),
    ("inspect softmax --variant naive/threads64 --html {folder}", "--html"),
    ("inspect softmax --variant naive/threads64 --target nope", "nope"),
    ("list nope", "'nope'"),
    ("model", "--validate"),
    ("model nope", "'nope'"),
    ("model softmax --variant nope", "'nope'"),
    ("model softmax --problem nope", "'nope'"),
    ("model softmax --per-kernel 0", "--per-kernel"),
    ("model softmax --target nope", "nope"),
    ("model --validate {nothing}", "{nothing}"),
    ("model --validate {file}", "{file}"),
    ("model --validate {json}", "{json}"),
    ("model --validate {deep}", "{deep}"),
    ("model softmax --fit", "--fit"),
    ("model softmax --out {folder}", "--out"),
    ("new Nope-1", "Nope-1"),
    ("new ../nope", "../nope"),
    ("profile softmax --variant nope", "'nope'"),
    ("profile softmax --problem nope", "'nope'"),
    ("profile softmax --tool nope", "--tool nope"),
    ("profile softmax --timeout 0", "--timeout"),
    ("survey regret", "needs an op"),
    ("survey regret nope", "nope"),
    ("survey fit softmax", "needs files"),
    ("survey adopt softmax {json}", "{json}"),
    ("survey fit softmax {deep}", "{deep}"),
    ("survey fit softmax {nothing}", "{nothing}"),
    ("survey recorded softmax --problems 3", "--problems"),
    ("promote nope", "'nope'"),
    ("promote softmax --variant nope", "'nope'"),
    ("promote softmax --margin 0", "--margin"),
    ("promote softmax --budget 0", "--budget"),
    ("promote softmax --at HEAD", "--at"),
    ("promote softmax --recorded {nothing}", "{nothing}"),
    ("promote softmax --recorded {folder}", "{folder}"),
    ("promote softmax --recorded {file}", "{file}"),
    ("promote softmax --recorded {json}", "{json}"),
    ("promote softmax --recorded {deep}", "{deep}"),
    ("promote softmax --recorded {goals}", "{goals}"),
    ("promote softmax --recorded {json} --at no-such-revision", "no-such-revision"),
    ("records nope {file}", "nope"),
    ("records import {nothing}", "{nothing}"),
    ("records import {file}", "{file}"),
    ("records import {json}", "{json}"),
    ("records import {deep}", "{deep}"),
    ("records import {json} --op softmax", "--op"),
    ("records export {folder}/x.json --op nope", "--op nope"),
    ("records export {folder}/x.txt", "x.txt"),
    ("records export {file}/x.json", "FILE"),
    ("report nope", "'nope'"),
    ("report softmax --run 999999", "999999"),
    ("report softmax --run one", "--run"),
    ("report softmax --published --run 999999 --json", "999999"),
    ("report softmax --html {file}/x", "--html"),
    ("report softmax --html {folder}/x --json", "--html"),
    ("show softmax nope", "'nope'"),
    ("show softmax naive/threads64 --target nope", "nope"),
    ("sweep softmax --problem nope", "'nope'"),
    ("sweep softmax --strategy nope", "--strategy"),
    ("sweep softmax --scheduler nonsense", "--scheduler nonsense"),
    ("sweep softmax --gpus 0", "--gpus"),
    ("sweep softmax --samples 1", "--samples"),
    ("sweep softmax --keep 2", "--keep"),
    ("sweep softmax --prune -1", "--prune"),
    ("sweep softmax --seed -1", "--seed"),
    ("sweep softmax --finalists -1", "--finalists"),
    ("sweep softmax --save {file}/x", "--save"),
    ("verify softmax --schedules -1", "--schedules"),
    ("verify softmax --variant nope", "'nope'"),
    ("verify softmax --problem nope", "'nope'"),
    ("verify softmax --target nope", "nope"),
)  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What the words of a case name."""
    contents = {"file": "no JSON", "json": '{"format": "x"}', "deep": "[" * 100_000, "goals": '{"timings": {}, "environment": 3}'}
    places = {name: tmp_path / f"{name}.json" for name in contents}
    for name, text in contents.items():
        places[name].write_text(text)
    return {name: str(path) for name, path in (places | {"folder": tmp_path, "nothing": tmp_path / "nothing.json"}).items()}


# The kernel is compiled and run before what it is held against is read.
LATE = pytest.param("crosscheck softmax --against {file} --variant naive/threads64", "{file}", marks=pytest.mark.slow)


@pytest.mark.parametrize(("words", "named"), [*(pytest.param(*case, id=case[0]) for case in CASES), LATE])
def test_a_wrong_value_is_wrong_use_and_named(
    words: str, named: str, places: dict[str, str], store: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words.format(**places).split())
    assert code in ((2, 3) if words.startswith("doctor") else (2,)), err
    said = out + err if words.startswith("doctor") else err
    assert named.format(**places) in said.replace("\n│ ", " ")
    assert ("Traceback" not in said and not out) or words.startswith("doctor")


@pytest.mark.usefixtures("emulated_device")
def test_a_bucket_that_there_is_not_is_said_before_anything_is_built(store: Records, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "promote", OP, "--variant", VARIANT, "--bucket", "nope", "--device", "emulated")
    assert code == 2 and "no bench problem in bucket nope" in err
    assert not out and "[1/" not in err


def test_every_verb_has_a_case() -> None:
    assert {words.split()[0] for words, _ in CASES} | {"frozen"} == VERBS


@pytest.mark.parametrize(
    ("name", "value", "words", "message"),
    [
        ("AICF_CACHE_DIR", "{file}", "build softmax", "is not a folder, and none can be created there"),
        ("AICF_CACHE_DIR", "{file}/x", "show softmax naive/threads64", "AICF_CACHE_DIR"),
        ("AICF_CACHE_DIR", "/proc/none", "build softmax", "AICF_CACHE_DIR"),
        ("AICF_RECORDS_URL", "nonsense", "records export {folder}/x.json", "is not a database URL"),
        ("AICF_RECORDS_URL", "nodialect://x", "records export {folder}/x.json", "no driver for nodialect"),
        ("AICF_RECORDS_URL", "postgresql://host:port/x", "records export {folder}/x.json", "is not a database URL"),
        ("AICF_RECORDS_URL", "sqlite:///{folder}", "report softmax", "unable to open database file"),
        ("AICF_RECORDS_URL", "sqlite:///{file}", "report softmax", "file is not a database"),
        ("AICF_RECORDS_URL", "sqlite:///{file}/x/y", "report softmax", "cannot make the folder"),
        ("AICF_RECORDS_URL", "sqlite:///{folder}/x?colour=red", "report softmax", "AICF_RECORDS_URL"),
        ("AICF_TARGET", "h2000", "build softmax", "did you mean 'h200'"),
        ("AICF_DEVICE", "cudda", "verify softmax", "did you mean 'cuda'"),
        ("AICF_JOBS", "many", "build softmax", "AICF_JOBS"),
        ("AICF_EMULATED_SCHEDUL", "random", "verify softmax", "did you mean 'SCHEDULE'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_wrong_use(
    name: str,
    value: str,
    words: str,
    message: str,
    places: dict[str, str],
    store: Records,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value.format(**places))
    code, _, err = run(capsys, *words.format(**places).split())
    assert code == 2, err
    assert message in err and "Traceback" not in err
    code, out, _ = run(capsys, "doctor")
    assert code == 3 and "MISSING" in out, "doctor says it too"


def test_a_password_is_not_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", "postgresql+psycopg://me:secret@127.0.0.1:1/x")
    code, out, err = run(capsys, "records", "export", str(tmp_path / "x.json"))
    assert code == 2 and "secret" not in out + err


def test_a_database_of_a_later_version_is_recognised(store: Records, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0007'")
    for words in ("report softmax", "doctor"):
        code, out, err = run(capsys, *words.split())
        assert code in (2, 3) and "schema 0007, this version of the project knows" in out + err


@pytest.mark.parametrize(("name", "value"), [("AICF_EMULATED_WORKERS", "lots"), ("AICF_EMULATED_LEVEL", "v9")])
def test_a_value_that_the_emulated_device_cannot_read_is_wrong_use(name: str, value: str) -> None:
    """In a process of its own: the library reads its variables once."""
    environment = {**os.environ, name: value, "AICF_DEVICE": "emulated"}
    words = [sys.executable, "-m", "harness", "verify", OP, "--variant", VARIANT]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 2, done.stderr
    assert f"harness: {name}={value}: " in done.stderr and "Traceback" not in done.stderr
