"""Records go through files into another database and come out the same; a file twice is a file once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.__main__ import main
from harness.errors import RecordError, RecordUseError
from harness.records.database import Records
from harness.records.interchange import export_records, import_records
from tests.harness.test_records import FACTS, VERDICT, start

KINDS = [".json", ".csv", ".parquet"]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Records]:
    store = Records(f"sqlite:///{tmp_path / 'full.sqlite'}")
    samples = np.array([1.1, 2.2, 3.3e-7], np.float32)
    bench = replace(VERDICT, kind="bench", problem="p", figures={"median_us": 1.1, "mode": "cold"}, samples=samples, clocks=samples)
    store.add_results(start(store), [VERDICT, replace(bench, reason='a, "b"\nc', clock_label="fixed-power", flags="-O3")])
    store.add_results(start(store, replace(FACTS, driver_version=13010)), [replace(VERDICT, op="other")])
    yield store
    store.close()


def describe(records: Records) -> list[object]:
    """Return everything but the keys of the database itself."""
    rows = []
    for row in (r.to_json() for r in records.list_results()):
        run = {k: v for k, v in row["run"].items() if k not in ("id", "environment_id", "environment")}
        environment = {k: v for k, v in row["run"]["environment"].items() if k != "id"}
        rows.append([{k: v for k, v in row.items() if k not in ("id", "run_id", "run")}, run, environment])
    return rows


@pytest.mark.parametrize("suffix", KINDS)
def test_a_file_holds_everything(full: Records, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    assert export_records(full, path) == 3
    other = Records(f"sqlite:///{tmp_path / 'other.sqlite'}")
    assert import_records(other, path) == (3, 0)
    assert import_records(other, path) == (0, 3)
    assert describe(other) == describe(full)
    assert len({r.run_id for r in other.list_results()}) == 2
    other.close()


def test_one_op_alone_is_exported_and_what_is_there_is_kept(full: Records, tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    assert export_records(full, path, op="toy") == 2
    other = Records(f"sqlite:///{tmp_path / 'other.sqlite'}")
    other.add_results(start(other), [VERDICT])
    assert import_records(other, path) == (2, 0)
    assert len(other.list_results()) == 3
    other.close()


def test_files_from_before_rows_had_names_are_imported_once(full: Records, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    export_records(full, path)
    rows = json.loads(path.read_text())
    for row in rows:
        del row["uid"], row["run"]["uid"], row["clocks"], row["flags"]
    path.write_text(json.dumps(rows))
    other = Records(f"sqlite:///{tmp_path / 'other.sqlite'}")
    assert import_records(other, path) == (3, 0)
    assert import_records(other, path) == (0, 3)
    assert len({r.run_id for r in other.list_results()}) == 2
    other.close()


@pytest.mark.parametrize("text", ["", "{}", '[{"kind": "bench"}]', "[1]"])
def test_another_file_is_refused_and_leaves_nothing(full: Records, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"holds no records|cannot be read as records: row 1"):
        import_records(full, path)
    with pytest.raises(RecordError, match=r"\.json, \.csv, \.parquet"):
        import_records(full, tmp_path / "file.xlsx")
    assert len(full.list_results()) == 3


def test_a_broken_row_among_good_ones_leaves_nothing(full: Records, tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    export_records(full, path)
    rows = json.loads(path.read_text())
    del rows[2]["run"]
    path.write_text(json.dumps(rows))
    other = Records(f"sqlite:///{tmp_path / 'other.sqlite'}")
    with pytest.raises(RecordError, match="row 3: run is not an object"):
        import_records(other, path)
    assert other.list_results() == []
    other.close()


def test_the_verb_copies_both_ways(
    full: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", full.url)
    path = str(tmp_path / "all.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["records", "export", path])
    assert ended.value.code == 0 and "3 results" in capsys.readouterr().out
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'new.sqlite'}")
    with pytest.raises(SystemExit) as ended:
        main(["records", "import", path])
    assert ended.value.code == 0 and "3 results inserted" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["records", "import", path, "--op", "toy"])
    assert ended.value.code == 2


def test_what_is_wrong_with_a_file_is_said_in_its_own_words(full: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.json"
    export_records(full, path)
    (row, *_) = json.loads(path.read_text())
    cases: list[tuple[object, str]] = [
        ({}, "it is not a list"),
        ([3], "row 1: it is not an object"),
        ([row, {k: v for k, v in row.items() if k != "run"}], "row 2: run is not an object"),
        ([{k: v for k, v in row.items() if k != "variant"}], "row 1: variant is missing"),
        ([row | {"energy_mj": 3.0}], "row 1: energy_mj is not known to this version of the project: use the version that wrote the file"),
        (
            [row | {"run": row["run"] | {"environment": row["run"]["environment"] | {"rack": 1}}}],
            "row 1: run.environment.rack is not known",
        ),
        ([row | {"verify_version": "2"}], "row 1: verify_version must be a whole number"),
        ([row | {"figures": []}], "row 1: figures must be an object"),
        ([row | {"samples": ["fast"]}], "row 1: samples must be a list of numbers"),
        ([row | {"samples": [1.0, float("nan")]}], "row 1: samples must be finite numbers"),
        ([row | {"figures": {"cold": {"median_us": [float("inf")]}}}], "row 1: figures holds NaN or infinity"),
    ]
    files = {tmp_path / f"{n}.json": (json.dumps(content), message) for n, (content, message) in enumerate(cases)}
    files |= {
        tmp_path / "syntax.json": ("[", "holds no records (is not JSON: Expecting value"),
        tmp_path / "deep.json": ("[" * 100_000, "nested too deeply"),
        tmp_path / "short.csv": ("uid,kind\n1\n", "a line has more or fewer columns"),
        tmp_path / "later.csv": ("uid,rack.name\n1,2\n", "row 1: rack.name is not known"),
        tmp_path / "text.parquet": ("nothing", "holds no records ("),
        tmp_path / "file.txt": ("", "records are written as .json, .csv, .parquet"),
    }
    other = Records(f"sqlite:///{tmp_path / 'other.sqlite'}")
    for file, (text, message) in files.items():
        file.write_text(text)
        with pytest.raises(RecordUseError) as caught:
            import_records(other, file)
        assert message in str(caught.value) and str(file) in str(caught.value)
        assert not re.search(r"Error|Traceback|<class|NoneType", str(caught.value)), caught.value
    with pytest.raises(RecordUseError, match="cannot be read: No such file"):
        import_records(other, tmp_path / "none.json")
    assert other.list_results() == []
    other.close()
    with pytest.raises(SystemExit) as ended:
        main(["records", "import", str(tmp_path / "0.json")])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("harness: ")
