"""C dispatcher and framework decide as docs/frozen.md says, on random calls of every frozen op, with measured times made up."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aicf.registry import How, HwCaps, Problem, Registry, SelectionError
from contract.errors import FrozenError
from contract.extension import fill_attributes
from contract.layout import dump_line, find_frozen_dir, hash_value
from contract.structs import Status, make_params
from deploy.dispatch import make_dispatcher
from deploy.errors import DeployError
from deploy.header import make_header
from deploy.selection import DeployedOp, select
from harness.discover import find_op
from harness.freezing.store.index import list_frozen_ops
from tests.contract.chooser import Call, choose, classify, list_axes, look_up
from tests.deploy.dispatchers import Choice, Preferences, build_dispatcher

OPS = list_frozen_ops(find_frozen_dir())
NUM_CALLS = 600
NUM_SLOW_CALLS = 4000  # with --slow


def make_medians(op: dict[str, Any], kernels: list[str], generator: random.Random) -> list[dict[str, Any]]:
    """Make up times of the op's problems, some kernels on some of them."""
    spec = find_op(op["op"]).op
    rows = []
    for problem in spec.select_problems("bench"):
        # Of the op as it was when it was frozen: it may have learnt more since.
        attributes = {a["name"]: problem.attributes.get(a["name"], a["default"]) for a in op["interface"]["attributes"]}
        classes = classify(op, Call(problem.sizes, attributes, {}, {}))
        facts = {
            "kind": "median",
            "arch": "sm_90a",
            "device": "made up",
            "problem": problem.name,
            "sizes": dict(problem.sizes),
            "attributes": attributes,
            "group": "/".join(str(classes[axis]) for axis in list_axes(op, "survey", "group")),
            "record": "0",
        }
        sure = generator.choice(kernels)  # so that the winners of a small set are among those that count
        for kernel in (k for k in kernels if k == sure or generator.random() < 0.6):
            time_us = float(f"{generator.uniform(5, 9):.3g}")
            mode = "cold" if kernel == sure else generator.choice(("cold", "cold", "cold", "hot"))
            rows.append(facts | {"kernel": kernel, "mode": mode, "median_us": time_us})
    return rows


def make_survey(op: dict[str, Any], kernels: list[str], generator: random.Random) -> dict[str, Any]:
    """Make up a survey of most of the kernels, so that it is asked for some buckets and not for others."""
    known = sorted(generator.sample(kernels, max(1, 3 * len(kernels) // 4)))
    names = sorted(op["interface"]["sizes"])
    axes = {axis["name"]: [c["name"] for c in axis["classes"]] for axis in op["axes"]}
    groups = []
    for classes in itertools.product(*(axes[axis] for axis in list_axes(op, "survey"))):
        timed = sorted(generator.sample(known, generator.randint(1, len(known))))
        points = []
        for _ in range(generator.randrange(12)):
            errors = [None if generator.random() < 0.3 else round(generator.uniform(-0.6, 1.5), 4) for _ in timed]
            points.append([int(2 ** generator.uniform(0, 14)) for _ in names] + errors)
        if points:
            loose = generator.choice([{}, {"loose": False}, {"loose": True}])
            groups.append({"group": "/".join(classes), "kernels": timed, "points": points} | loose)
    weights = {k: [float(f"{generator.uniform(0, 3):.3g}") for _ in range(7)] for k in known}
    shapes = {k: {"tile": dict.fromkeys(names, 64), "slots": 33.0, "idle_us": 2.0} for k in known[::2]}
    facts = {"kind": "survey", "arch": "sm_90a", "device": "made up", "record": "none"}
    return facts | {"weights": weights, "shapes": shapes, "groups": groups}


@pytest.fixture(scope="module")
def frozen_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's set with made-up times, and half of the fallbacks' domains as they are."""
    folder = tmp_path_factory.mktemp("set") / "frozen"
    shutil.copytree(find_frozen_dir(), folder)
    for op in OPS:
        index = folder / op / "index.jsonl"
        rows = [row for row in map(json.loads, index.read_text().splitlines()) if row["kind"] not in ("median", "survey")]
        kernels = sorted({r["kernel"] for r in rows if r["kind"] == "entry"})
        rows += make_medians(rows[0], kernels, random.Random(op))
        rows.append(make_survey(rows[0], kernels, random.Random(op)))
        index.write_text("".join(dump_line(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def library(frozen_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_dispatcher(tmp_path_factory.mktemp("dispatcher"), select(frozen_dir))


def fill_params(op: DeployedOp, call: Call) -> ctypes.Structure:
    return make_params(op.interface, call.sizes, call.attributes, call.addresses, call.strides)


def draw_call(op: DeployedOp, generator: random.Random) -> Call:
    attributes = {a["name"]: generator.choice(a["choices"]) for a in op.interface["attributes"]}
    points = list(op.medians) or [None]
    point = generator.choice(points)
    kind = generator.random()
    if point is not None and kind < 0.6:
        sizes = dict(point["sizes"])
        attributes = dict(point["attributes"]) if generator.random() < 0.8 else attributes
        if kind > 0.2:
            sizes = {name: max(1, int(size * 2 ** generator.uniform(-2.5, 2.5))) for name, size in sizes.items()}
    else:
        # Strides of several dimensions must stay below 2**63.
        rank = max(len(row["value"]) for t in op.interface["tensors"] for row in t["shape"])
        limit = 31 if kind > 0.95 and rank <= 2 else 14
        sizes = {name: max(1, int(2 ** generator.uniform(0, limit))) for name in op.interface["sizes"]}
    if generator.random() < 0.5:
        sizes = {name: max(8, size // 8 * 8) for name, size in sizes.items()}
    addresses, strides = {}, {}
    is_aligned = generator.random() < 0.7
    for i, tensor in enumerate(op.interface["tensors"]):
        if look_up(tensor["present"], attributes):
            addresses[tensor["name"]] = (i + 1 << 40) + (0 if is_aligned else generator.choice((0, 2, 4, 8)))
            shape = look_up(tensor["shape"], attributes)
            if tensor["stride"]:
                row = shape[-1] if isinstance(shape[-1], int) else sizes[shape[-1]]
                strides[tensor["name"]] = row + (0 if is_aligned else generator.choice((0, 1, 8)))
            elif "strides" in tensor:
                lengths = [sizes[each] if isinstance(each, str) else each for each in shape]
                packed = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
                packed[0] += 0 if is_aligned else generator.choice((0, 1, 8))
                strides[tensor["name"]] = tuple(packed)
    return Call(sizes, attributes, addresses, strides)


def ask_registry(registry: Registry, op: str, call: Call) -> tuple[str | None, int, float | None]:
    try:
        handle = registry.select(op, Problem(call.sizes, call.attributes, call.strides, call.addresses), HwCaps(9, 0))
    except SelectionError:
        return None, 0, None
    return handle.kernel, 1 + list(How).index(handle.how), handle.predicted_us


@pytest.mark.parametrize("name", OPS)
def test_dispatcher_and_registry_agree_with_the_description_on_random_calls(
    name: str, frozen_dir: Path, library: ctypes.CDLL, pytestconfig: pytest.Config
) -> None:
    num_calls = NUM_SLOW_CALLS if pytestconfig.getoption("--slow") else NUM_CALLS
    (op,) = select(frozen_dir, [name])
    rows = [op.description, *op.entries, *op.medians, *op.surveys]
    manifests = {k.name: k.manifest for k in op.kernels}
    function = getattr(library, f"aicf_{name}_choose_on")
    function.restype = Status
    generator = random.Random(name)
    seen: Counter[int] = Counter()
    buckets: list[dict[str, str | None]] = []
    registry = Registry(frozen_dir)
    for _ in range(num_calls):
        call = draw_call(op, generator)
        kernel, how = choose(rows, manifests, "sm_90a", call)
        choice = Choice()
        status = function(b"sm_90a", ctypes.byref(fill_params(op, call)), None, ctypes.byref(choice))
        found = (choice.kernel.decode(), choice.how) if status.code == 0 else (None, 0)
        assert found == (kernel, how), (call, status.reason)
        assert ask_registry(registry, name, call) == (*found, choice.predicted_us if how in (1, 2, 3, 4) else None), call
        seen[how] += 1
        if (bucket := classify(op.description, call)) not in buckets:
            buckets.append(bucket)
    # A survey that knows all winners leaves nothing to near problems and the prior.
    winners = {e["kernel"] for e in op.entries if e["role"] == "winner"}
    unknown = winners - {k for s in op.surveys for k in s["weights"]}
    assert unknown or len(winners) < 8
    needs_others = [e["bucket"] for e in op.entries if e["role"] == "winner" and e["kernel"] in unknown]
    is_needed = any(reached | {"arch": "sm_90a"} in needs_others for reached in buckets)
    assert seen[1] > num_calls // 100 and seen[2] > num_calls // 20 and (seen[3] + seen[4] > num_calls // 500 or not is_needed), seen


def test_bad_calls_and_unmet_wishes_are_refused_with_the_reason(frozen_dir: Path, library: ctypes.CDLL) -> None:
    (op,) = select(frozen_dir, ["softmax"])
    function = library.aicf_softmax_choose_on
    function.restype = Status
    choice = Choice()
    call = Call({"rows": 4, "columns": 4}, fill_attributes({}, op.interface), {"x": 1 << 40, "y": 1 << 41}, {"x": 4, "y": 4})
    params = fill_params(op, call)
    status = function(b"sm_80", ctypes.byref(params), None, ctypes.byref(choice))
    assert (status.code, status.reason) == (1, b"softmax: this library has no kernel for sm_80")
    params.rows = 0
    status = function(b"sm_90a", ctypes.byref(params), None, ctypes.byref(choice))
    assert (status.code, status.reason) == (2, b"rows = 0: must be at least 1")
    params.rows = 1 << 40
    status = function(b"sm_90a", ctypes.byref(params), None, ctypes.byref(choice))
    assert status.code == 1 and b"none of the kernels for sm_90a serves this call" in status.reason
    params.rows = 4
    status = function(b"sm_90a", ctypes.byref(params), ctypes.byref(Preferences(1, 0)), ctypes.byref(choice))
    assert status.code == 0 and choice.deterministic == 1


def test_only_what_was_chosen_is_in_the_library(frozen_dir: Path) -> None:
    (op,) = select(frozen_dir, ["gemm_bias_act"], ["sm_90a"], ["naive__*", "mma__*"])
    text = make_dispatcher([op])
    assert {k.name.split("__")[0] for k in op.kernels} == {"naive", "mma"}
    assert "wgmma__" not in text and "pipelined__" not in text and "softmax" not in text
    assert "SoftmaxParams" not in make_header([op])
    with pytest.raises(DeployError, match="no frozen kernel matches"):
        select(frozen_dir, [], ["sm_75"])
    with pytest.raises(DeployError, match=r"conv is not frozen; there are: .*gemm_bias_act"):
        select(frozen_dir, ["conv"])


def test_a_library_of_earlier_kernels_alone_has_the_present_header() -> None:
    """The kernels of ``gemm_backward`` that were frozen first take the struct that has grown since."""
    (whole,) = select(find_frozen_dir(), ["gemm_backward"])
    present = hash_value(whole.interface)
    earlier = [kernel.name for kernel in whole.kernels if kernel.manifest["interface"] != present]
    (op,) = select(find_frozen_dir(), ["gemm_backward"], patterns=earlier)
    assert whole.header is None and op.header is not None and [kernel.name for kernel in op.kernels] == earlier
    struct = re.compile(r"typedef struct GemmBackwardParams \{.*?\n\} GemmBackwardParams;", re.DOTALL)
    assert struct.findall(make_header([op])) == struct.findall(make_header([whole])) != []


def test_what_is_not_as_it_was_sealed_is_not_deployed(tmp_path: Path) -> None:
    folder = tmp_path / "frozen"
    shutil.copytree(find_frozen_dir() / "softmax", folder / "softmax")
    for manifest in (folder / "softmax").glob("kernels/row_in_shared*.json"):
        manifest.write_text(manifest.read_text().replace('"deterministic": true', '"deterministic": false'))
    with pytest.raises(FrozenError, match=r"the manifest is not what was sealed"):
        select(folder, [], [], ["row_in_shared*"])
    for source in (folder / "softmax" / "revisions").glob("*/sources/softmax/kernels.cu"):
        source.write_text(source.read_text() + " ")
    with pytest.raises(FrozenError, match=r"kernels.cu: is not what was sealed"):
        select(folder, [], [], ["naive*"])
