"""The compiled decision against an independent chooser on made-up sets, and its tables in memory against the same as C text."""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contract import decision_structs
from contract.calls import Problem
from contract.decision import HEADER, SOURCE, Asked, DecisionCore, How, find_arch
from contract.decision_structs import LISTS, NUMBERS, AicfDecision, AicfTable
from contract.decision_tables import make_table
from contract.decision_text import render_table
from contract.errors import FrozenError
from tests.contract.chooser import Call, choose
from tests.contract.made_up_sets import ARCH, MadeUpSet, draw_call, draw_set

NUM_SETS, NUM_CALLS = 400, 15
STEPS = list(How)


def open_set(made: MadeUpSet) -> DecisionCore:
    return DecisionCore(make_table(ARCH, made.description, made.entries, made.medians, made.survey, made.manifests))


def ask(core: DecisionCore, call: Call) -> Asked:
    return core.ask(core.interface.make_query(Problem(call.sizes, call.attributes, call.strides, call.addresses)))


def name_choice(core: DecisionCore, asked: Asked, kernels: int) -> tuple[str | None, int]:
    found = core.decide(asked, kernels)
    return (None, 0) if found is None else (core.table.kernels[found.kernel], 1 + STEPS.index(found.how))


def test_the_compiled_decision_is_the_described_one_on_thousands_of_calls_of_made_up_sets() -> None:
    generator = random.Random(15)
    seen: Counter[int] = Counter()
    for _ in range(NUM_SETS):
        made = draw_set(generator)
        core = open_set(made)
        for _ in range(NUM_CALLS):
            call = draw_call(generator, made)
            asked = ask(core, call)
            expected = choose(made.rows, made.manifests, ARCH, call)
            assert name_choice(core, asked, asked.legal) == expected, call
            seen[expected[1]] += 1
            refused = [n for n, m in made.manifests.items() if not m["deterministic"] or m.get("accumulate") != "float32"]
            kept = core.keep_preferred(asked.legal, deterministic=True, accumulate="float32")
            assert name_choice(core, asked, kept) == choose(made.rows, made.manifests, ARCH, call, refused), call
    assert min(seen[step] for step in range(6)) > 50, seen


def test_workspaces_beyond_the_limit_and_all_but_the_least_are_dropped() -> None:
    generator = random.Random(3)
    for _ in range(200):
        core = open_set(draw_set(generator))
        count = len(core.table.kernels)
        kernels = generator.getrandbits(count)
        wanted = {i: generator.choice([0, 512, 4096]) for i in range(count)}
        mine = {i: w for i, w in wanted.items() if kernels >> i & 1}
        small = core.keep_small(kernels, wanted, max_bytes=512, least=False)
        assert small == sum(1 << i for i, w in mine.items() if w <= 512)
        least = core.keep_small(kernels, wanted, max_bytes=None, least=True)
        assert least == sum(1 << i for i, w in mine.items() if w == min(mine.values()))
        assert core.keep_preferred(kernels, deterministic=False, accumulate="bfloat16") == 0


def test_tables_as_c_text_decide_like_tables_in_memory(tmp_path: Path) -> None:
    generator = random.Random(9)
    sets = [draw_set(generator) for _ in range(25)]
    cores = [open_set(made) for made in sets]
    texts = ['#include "decide.h"\n#include <math.h>\n#include <stddef.h>\n']
    for i, core in enumerate(cores):
        texts.append(f"{render_table(f'table{i}', core.table)}const AicfTable* get_{i}(void) {{ return &table{i}; }}\n")
    (tmp_path / "tables.c").write_text("".join(texts))
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE.parent}"]
    target = tmp_path / "tables.so"
    sources = [str(tmp_path / "tables.c"), str(SOURCE)]
    subprocess.run(["gcc", *strict, "-shared", "-fPIC", "-ffp-contract=off", *sources, "-o", str(target), "-lm"], check=True)
    library = ctypes.CDLL(str(target))
    for i, (made, core) in enumerate(zip(sets, cores, strict=True)):
        get = getattr(library, f"get_{i}")
        get.restype = ctypes.POINTER(AicfTable)
        for _ in range(20):
            asked = ask(core, draw_call(generator, made))
            other, found = Asked(), AicfDecision()
            library.aicf_ask(get(), ctypes.byref(asked.struct.call), ctypes.byref(other.struct))
            assert bytes(other.struct) == bytes(asked.struct)
            library.aicf_decide(get(), ctypes.byref(other.struct), other.struct.legal, ctypes.byref(found))
            decided = core.decide(asked, asked.legal)
            kernel, us = (-1, None) if decided is None else (decided.kernel, decided.us)
            assert (found.kernel, found.us) == (kernel, -1.0 if us is None else us)


def test_the_structs_are_the_headers(tmp_path: Path) -> None:
    structs = {name: each for name, each in vars(decision_structs).items() if name.startswith("Aicf")}
    assert structs.keys() == set(re.findall(r"^typedef struct (\w+) \{", HEADER.read_text(), re.MULTILINE))
    lines = ['#include "decide.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n']
    expected = []
    for name, struct in structs.items():
        for field, kind in struct._fields_:
            lines.append(f'    printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));\n')
            expected.append(f"{getattr(struct, field).offset} {ctypes.sizeof(kind)}")
        lines.append(f'    printf("%zu\\n", sizeof({name}));\n')
        expected.append(str(ctypes.sizeof(struct)))
    limits = {name: value for name, value in vars(decision_structs).items() if name.startswith(("MAX_", "NUM_TERMS", "MASK_WORDS"))}
    for name, value in limits.items():
        lines.append(f'    printf("%d\\n", AICF_{name});\n')
        expected.append(str(value))
    (tmp_path / "print.c").write_text("".join([*lines, "    return 0;\n}\n"]))
    subprocess.run(["gcc", f"-I{HEADER.parent}", str(tmp_path / "print.c"), "-o", str(tmp_path / "print")], check=True)
    printed = subprocess.run([str(tmp_path / "print")], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == expected
    assert [*NUMBERS, *LISTS] == [f for f, _ in AicfTable._fields_ if f not in ("l2_bytes_per_s", "surveyed")]


def with_cost(flops: Any) -> MadeUpSet:
    generator = random.Random(1)
    made = draw_set(generator)
    while made.description["cost"] is None:
        made = draw_set(generator)
    made.description["cost"]["flops"] = [{"when": {}, "value": flops}]
    return made


@pytest.mark.parametrize(
    ("postfix", "message"),
    [
        (["S0", "+"], r"a formula's '\+' has fewer than 2 numbers before it"),
        (["S0", "T", "*"], r"a formula names 'T', which is neither a size \(S0.*\) nor one of \+, -"),
        (["S0", 1.0], r"a formula leaves 2 numbers, must leave one"),
        (["S0"] * 40 + ["+"] * 39, r"a formula keeps more than 32 numbers at once"),
    ],
)
def test_a_formula_that_is_none_is_refused_by_name(postfix: list[Any], message: str) -> None:
    with pytest.raises(FrozenError, match=message):
        open_set(with_cost({"postfix": postfix}))


def test_more_than_the_core_has_room_for_is_refused_by_name() -> None:
    made = with_cost([])
    made.description["interface"]["sizes"] = {f"S{i:02}": "m" for i in range(17)}
    with pytest.raises(FrozenError, match="made_up: 17 sizes; a decision looks at 16 at most"):
        open_set(made)
    made = with_cost([])
    (name, manifest), *_ = made.manifests.items()
    many = {f"{name}{i}": manifest for i in range(257)}
    entries = [e | {"kernel": k} for k in many for e in made.entries[:1]]
    with pytest.raises(FrozenError, match="made_up: 257 kernels for sm_90a; at most 256 are supported"):
        make_table(ARCH, made.description, entries, [], None, many)


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90a"), ((8, 6), "sm_80"), ((8, 0), "sm_80"), ((9, 1), "sm_90"), ((7, 5), ""), ((10, 0), "sm_100")]
)
def test_the_best_architecture_that_runs_on_a_device_is_found(capability: tuple[int, int], arch: str) -> None:
    assert find_arch(("sm_100", "sm_80", "sm_90", "sm_90a"), *capability) == arch
