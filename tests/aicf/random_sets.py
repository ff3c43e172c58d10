"""Frozen sets of a made-up op, drawn by hypothesis: domains, buckets and times that no op has, and calls of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from contract.frozen_set import FrozenOp
from contract.kernels import FrozenKernel

SIZES = ("M", "N")
ACTS = ("none", "relu", "silu")
ARCHS = ("sm_80", "sm_90", "sm_90a")
REGIONS = ("small", "large")
_BOOLS = [{"when": {"save": False}, "value": False}, {"when": {"save": True}, "value": True}]


def make_tensor(name: str, role: str, shape: list[str], stride: str | None = None) -> dict[str, Any]:
    always: list[dict[str, Any]] = [{"when": {}, "value": True}]
    table = [{"when": {}, "value": "float32"}]
    present = _BOOLS if name == "z" else always
    return {
        "name": name,
        "role": role,
        "field": name,
        "stride": stride,
        "dtype": table,
        "shape": [{"when": {}, "value": shape}],
        "present": present,
    }


DESCRIPTION: dict[str, Any] = {
    "kind": "op",
    "schema": 1,
    "op": "made_up",
    "interface": {
        "include": "made_up/api.hpp",
        "struct": "MadeUpParams",
        "fields": [{"name": n, "type": "pointer"} for n in ("x", "y", "z")]
        + [{"name": n, "type": "int64"} for n in ("m", "n", "ldx", "ldz")]
        + [{"name": "act", "type": "int32"}],
        "sizes": {"M": "m", "N": "n"},
        "attributes": [
            {"name": "save", "choices": [False, True], "default": False, "present": "z"},
            {"name": "act", "choices": list(ACTS), "codes": [0, 1, 2], "default": "none", "field": "act"},
        ],
        "tensors": [
            make_tensor("x", "input", ["M", "N"], "ldx"),
            make_tensor("y", "output", ["M"]),
            make_tensor("z", "output", ["M", "N"], "ldz"),
        ],
    },
    "axes": [
        {
            "name": "epilogue",
            "classes": [{"name": "saves", "when": [{"attribute": "save", "in": [True]}]}, {"name": "plain", "when": []}],
        },
        {
            "name": "region",
            "classes": [{"name": "small", "when": [{"count": {"M": 1, "N": 1}, "max": 4096}]}, {"name": "large", "when": []}],
        },
    ],
    "cost": {
        "flops": [{"when": {}, "value": [[2.0, ["M", "N"]]]}],
        "bytes_moved": [{"when": {}, "value": [[4.0, ["M", "N"]], [4.0, ["M"]]]}],
        "flop_unit": [{"when": {}, "value": "fp32"}],
        "reads": [{"when": {"save": s}, "value": [[4.0, ["M", "N"]], [4.0, ["N"]], *([[2.0, []]] if s else [])]} for s in (False, True)],
        "l2_bytes_per_s": {"sm_90a": 8e12},
    },
}

sizes = st.fixed_dictionaries({n: st.one_of(st.integers(1, 4096), st.integers(0, 14).map(lambda e: 2**e)) for n in SIZES})
attributes = st.fixed_dictionaries({"act": st.sampled_from(ACTS), "save": st.booleans()})
conditions = st.one_of(
    st.lists(st.sampled_from(ACTS), min_size=1, max_size=2, unique=True).map(lambda v: {"attribute": "act", "in": v}),
    st.builds(lambda n, low: {"count": {n: 1}, "min": low}, st.sampled_from(SIZES), st.integers(2, 512)),
    st.builds(lambda n, high: {"count": {n: 16}, "max": high}, st.sampled_from(SIZES), st.integers(1, 300)),
    st.builds(lambda n: {"count": {n: 1}, "multiple": 8}, st.sampled_from(SIZES)),
    st.builds(lambda t: {"tensor": t, "address": 16, "stride": 4}, st.sampled_from(["x", "z"])),
    st.just({"tensor": "y", "address": 8}),
    st.just({"tensor": "x", "max_stride": 2048}),
)


def make_kernel(name: str, arch: str, domain: list[Any], facts: dict[str, Any], tile: dict[str, int]) -> FrozenKernel:
    manifest = {
        "op": "made_up",
        "kernel": name,
        "arch": arch,
        "domain": domain,
        "alignment_bytes": {},
        "capture_safe": True,
        "prior": {"tile": tile, "slots": 132, "flops_per_s": {"fp32": 6e13}, "bytes_per_s": 4.8e12},
        "workspace": {"kind": "none", "max_bytes": 0},
    }
    return FrozenKernel(manifest | facts, Path("/nowhere") / name)


kernels = st.builds(
    lambda arch, domain, deterministic, edge: (arch, domain, {"deterministic": deterministic}, {"M": edge} if edge else {}),
    st.sampled_from(ARCHS),
    st.lists(conditions, max_size=3),
    st.booleans(),
    st.sampled_from([0, 1, 64]),
)


def make_bucket(arch: str, epilogue: str, region: str) -> dict[str, str]:
    return {"arch": arch, "dtypes": "any", "layout": "any", "epilogue": epilogue, "region": region}


@st.composite
def frozen_ops(draw: st.DrawFn) -> FrozenOp:
    """An op with one fallback an architecture that serves everything, some winners, and times of some of them on some problems."""
    found = {f"always__{arch}": make_kernel(f"always__{arch}", arch, [], {"deterministic": True}, {}) for arch in ARCHS}
    entries = [{"bucket": make_bucket(a, "any", "any"), "role": "fallback", "kernel": f"always__{a}", "status": "measured"} for a in ARCHS]
    for i, (arch, domain, facts, tile) in enumerate(draw(st.lists(kernels, max_size=5))):
        name = f"k{i}"
        found[name] = make_kernel(name, arch, domain, facts, tile)
        role = draw(st.sampled_from(["winner", "winner", "fallback", "population"]))
        place = draw(st.tuples(st.sampled_from(["saves", "plain"]), st.sampled_from(REGIONS))) if role == "winner" else ("any", "any")
        entries.append({"bucket": make_bucket(arch, *place), "role": role, "kernel": name, "status": "measured"})
    problems = draw(st.lists(st.tuples(sizes, attributes), max_size=4))
    medians = []
    for i, (at, having) in enumerate(problems):
        for name in draw(st.lists(st.sampled_from(sorted(found)), unique=True, max_size=4)):
            group = f"any/any/{'saves' if having['save'] else 'plain'}"
            facts = {"problem": f"p{i}", "sizes": at, "attributes": having, "group": group, "arch": found[name].arch}
            medians.append({"kind": "median", "mode": "cold", "kernel": name, "median_us": draw(st.sampled_from([1.0, 2.0, 3.5]))} | facts)
    made = FrozenOp("made_up", Path("/nowhere"), DESCRIPTION, tuple(entries), tuple(medians), found)
    names = sorted(n for n, k in found.items() if k.arch == "sm_90a")
    known = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
    return replace(made, surveys={"sm_90a": draw(surveys(known))}) if known else made


@st.composite
def surveys(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    """A survey of some kernels, on some problems of the one group that there is."""
    weights = {n: draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=5, max_size=7)) for n in names}
    tiles = st.dictionaries(st.sampled_from(SIZES), st.sampled_from([8, 64]))
    idle = {"idle_us": st.sampled_from([0.0, 0.5])}
    shape = st.fixed_dictionaries({"tile": tiles, "slots": st.sampled_from([1.0, 66.0])}, optional=idle).flatmap(
        lambda made: st.just(made) if not made["tile"] else st.sampled_from([made, made | {"least": {min(made["tile"]): 8}}])
    )
    shapes = draw(st.dictionaries(st.sampled_from(names), shape))
    timed = draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    error = st.one_of(st.none(), st.sampled_from([-0.5, 0.0, 0.25, 1.0]))
    point = st.tuples(st.integers(1, 4096), st.integers(1, 4096), st.lists(error, min_size=len(timed), max_size=len(timed)))
    points = [[m, n, *errors] for m, n, errors in draw(st.lists(point, max_size=4))]
    groups = [{"group": "any/any", "kernels": timed, "points": points}] if points else []
    return {
        "kind": "survey",
        "arch": "sm_90a",
        "device": "made up",
        "record": "none",
        "weights": weights,
        "shapes": shapes,
        "groups": groups,
    }


@st.composite
def calls(draw: st.DrawFn, op: FrozenOp) -> dict[str, Any]:
    """The arguments of a problem: often one that was measured, or near one."""
    at, having = draw(sizes), draw(attributes)
    if op.medians and draw(st.booleans()):
        median = draw(st.sampled_from(op.medians))
        at, having = dict(median["sizes"]), dict(median["attributes"])
        if draw(st.booleans()):
            at = {n: max(1, v * draw(st.integers(1, 16)) // 4) for n, v in at.items()}
    present = ["x", "y", *(["z"] if having["save"] else [])]
    strides = {t: at["N"] + draw(st.integers(0, 8)) for t in present if t != "y" and draw(st.booleans())}
    addresses = {t: draw(st.integers(1, 64)) * 4 for t in present} if draw(st.booleans()) else {}
    return {"sizes": at, "attributes": having, "strides": strides, "addresses": addresses}
