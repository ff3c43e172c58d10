"""What runs leave behind: features of the problem, patterns of the structure, and what came of it; a corpus of them in one file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aicf.rewrite.induce.patterns import Patterns
from contract.files import write_atomically

CORPUS = Path(__file__).with_name("corpus.jsonl.gz")


@dataclass(frozen=True)
class Record:
    """One run. ``loss`` is of held-out rows, over that of the best constant; ``curve`` is the training loss in parts of the run.

    ``structure`` names what was trained: text that :func:`~aicf.rewrite.induce.make_structure` takes, or a file or run by another name
    where ``is_text`` is False.
    """

    problem: str
    family: str
    features: Mapping[str, float]
    structure: str
    patterns: Patterns
    loss: float
    curve: tuple[float, ...] = ()
    seed: int = 0
    is_text: bool = True

    def __post_init__(self) -> None:
        if not self.loss >= 0.0:
            raise ValueError(f"{self.problem}, {self.structure!r}: loss {self.loss}: must be a number that is not negative")

    @property
    def name(self) -> str:
        """The run in words."""
        return f"{self.structure or 'linear'} on {self.problem}, seed {self.seed}"


class Corpus:
    """Records in their order. All of one problem share its features: raises ValueError for others."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = []
        self._features: dict[str, Mapping[str, float]] = {}
        for record in records:
            self.add(record)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def add(self, record: Record) -> None:
        """Append a record."""
        known = self._features.setdefault(record.problem, record.features)
        if known != record.features:
            raise ValueError(f"{record.problem}: is in the corpus with other features; give this problem another name")
        self.records.append(record)

    @property
    def families(self) -> list[str]:
        """The families, sorted."""
        return sorted({record.family for record in self.records})

    @property
    def structures(self) -> dict[str, str]:
        """The structures that can be made, as text, by their patterns' key."""
        return {record.patterns.key: record.structure for record in self.records if record.is_text}

    def select(self, families: Iterable[str]) -> Corpus:
        """Return the records of some families."""
        wanted = set(families)
        return Corpus(record for record in self.records if record.family in wanted)

    def write(self, path: Path | str) -> None:
        """Write compressed lines of JSON: problems and structures once each, and a line per run. The same records give the same bytes."""
        text = "".join(f"{json.dumps(line, separators=(',', ':'), sort_keys=True)}\n" for line in self._list_lines())
        write_atomically(Path(path), gzip.compress(text.encode(), mtime=0))

    def _list_lines(self) -> Iterator[dict[str, Any]]:
        problems: dict[str, int] = {}
        structures: dict[tuple[str, str], int] = {}
        for record in self.records:
            if record.problem not in problems:
                problems[record.problem] = len(problems)
                yield {"kind": "problem", "name": record.problem, "family": record.family, "features": dict(record.features)}
            patterns, key = record.patterns, (record.structure, record.patterns.key)
            if key not in structures:
                structures[key] = len(structures)
                line = {"kind": "structure", "name": record.structure, "is_text": record.is_text, "key": patterns.key}
                yield line | {"values": dict(patterns.values)}
            run = {"kind": "run", "problem": problems[record.problem], "structure": structures[key], "seed": record.seed}
            sizes = {"parameters": patterns.parameters, "flops": patterns.flops_per_row}
            yield run | sizes | {"loss": record.loss, "curve": list(record.curve)}

    @classmethod
    def read(cls, path: Path | str = CORPUS) -> Corpus:
        """Return the corpus of a file, by default the one that comes with the package; raises ValueError naming a bad line."""
        made = cls()
        problems: list[dict[str, Any]] = []
        structures: list[dict[str, Any]] = []
        for number, text in enumerate(gzip.decompress(Path(path).read_bytes()).decode().splitlines(), 1):
            try:
                line = json.loads(text)
                if line["kind"] == "run":
                    made.add(_read_run(line, problems[line["problem"]], structures[line["structure"]]))
                else:
                    {"problem": problems, "structure": structures}[line["kind"]].append(line)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: is not a line of a corpus: {error}") from None
        return made


def _read_run(line: Mapping[str, Any], problem: Mapping[str, Any], structure: Mapping[str, Any]) -> Record:
    patterns = Patterns(structure["key"], structure["values"], line["parameters"], line["flops"])
    names = problem["name"], problem["family"], problem["features"], structure["name"]
    return Record(*names, patterns, line["loss"], tuple(line["curve"]), line["seed"], structure["is_text"])


def mean_over_seeds(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """Return a record per problem and structure (by its patterns' key), the first one with the mean loss of all."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.problem, record.patterns.key), []).append(record)
    return {key: replace(found[0], loss=sum(r.loss for r in found) / len(found)) for key, found in groups.items()}
