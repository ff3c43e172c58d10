"""Rows of made-up ops as an index has them, drawn at random: sizes, attributes, axes, domains, costs, buckets, times and surveys."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

from tests.contract.chooser import PARTS, Call, classify, list_axes

ARCH = "sm_90a"
Row = dict[str, Any]


@dataclass(frozen=True)
class MadeUpSet:
    """An op's rows, and the manifests of its kernels."""

    description: Row
    entries: list[Row]
    medians: list[Row]
    survey: Row | None
    manifests: dict[str, Row]

    @property
    def rows(self) -> list[Row]:
        return [self.description, *self.entries, *self.medians, *([self.survey] if self.survey else [])]


def draw_set(generator: random.Random) -> MadeUpSet:
    """Draw a set; few have more kernels than a word has bits, or a dozen sizes."""
    sizes = [f"S{i}" for i in range(12 if generator.random() < 0.1 else generator.randint(1, 3))]
    attributes: Row = {"act": ["none", "relu", "silu"], "save": [False, True], "count": [1, 2]}
    attributes = {name: attributes[name] for name in generator.sample(sorted(attributes), generator.randint(0, 3))}
    description = describe(generator, sizes, attributes)
    num_kernels = generator.randint(65, 90) if generator.random() < 0.1 else generator.randint(1, 7)
    manifests, entries = {}, []
    for i in range(num_kernels):
        name = f"k{i:02}"
        manifests[name] = draw_manifest(generator, name, description)
        for _ in range(generator.randint(1, 2)):
            role = generator.choice(["winner", "winner", "fallback", "population"])
            classes = {axis["name"]: generator.choice(axis["classes"])["name"] for axis in description["axes"]}
            bucket = {"arch": ARCH} | (classes if role == "winner" else dict.fromkeys(classes, "any"))
            entries.append({"kind": "entry", "bucket": bucket, "role": role, "kernel": name, "status": "measured"})
    return MadeUpSet(
        description, entries, draw_medians(generator, description, manifests), draw_survey(generator, description, manifests), manifests
    )


def describe(generator: random.Random, sizes: list[str], attributes: Row) -> Row:
    tensors = [
        {"name": name, "field": name, "role": role, "stride": f"ld{name}" if has_stride else None}
        | {"dtype": when_always("float32"), "shape": when_always([sizes[0], sizes[-1]]), "present": when_always(True)}
        for name, role, has_stride in (("x", "input", True), ("y", "output", False))
    ]
    heads = {"name": "w", "field": "w", "role": "input", "stride": None, "strides": ["w0", "w1", None]}
    shape = [sizes[-1], 3, sizes[0]]
    tensors.append(heads | {"dtype": when_always("float32"), "shape": when_always(shape), "present": when_always(True)})
    fields = [{"name": n, "type": "pointer"} for n in ("x", "y", "w")] + [
        {"name": n, "type": "int64"} for n in [*map(str.lower, sizes), "ldx", "w0", "w1"]
    ]
    rows = [
        {"name": name, "choices": choices, "default": choices[0], "field": name, "codes": list(range(len(choices)))}
        for name, choices in attributes.items()
    ]
    interface = {
        "include": "made_up/api.hpp",
        "struct": "MadeUpParams",
        "fields": fields + [{"name": name, "type": "int32"} for name in attributes],
        "sizes": {size: size.lower() for size in sizes},
        "attributes": rows,
        "tensors": tensors,
    }
    conditions = [{"attribute": n, "in": [v]} for n, choices in attributes.items() for v in choices]
    conditions += [{"count": {size: 1}, "max": limit} for size in sizes[:2] for limit in (8, 64, 512)]
    conditions += [{"count": {sizes[0]: 1, sizes[-1]: 16}, "min": 40}, {"count": {sizes[0]: 1}, "multiple": 8}]
    axes = []
    for axis, part in draw_axes(generator):
        classes = [{"name": f"c{i}", "when": [generator.choice(conditions)]} for i in range(generator.randint(0, 2))]
        last = [] if generator.random() < 0.1 and classes else [{"name": "any", "when": []}]
        axes.append({"name": axis, "classes": classes + last} | ({} if PARTS.get(axis) == part else {"part": part}))
    cost = None if generator.random() < 0.15 else draw_cost(generator, sizes, attributes)
    return {"kind": "op", "op": "made_up", "schema": 1, "interface": interface, "axes": axes, "cost": cost}


def draw_axes(generator: random.Random) -> list[tuple[str, str]]:
    """Draw names and parts of axes: the common four, or some of the op's own, up to eight with the common ones among them."""
    if generator.random() < 0.6:
        return list(PARTS.items())
    drawn: list[tuple[str, str]] = []
    for part in ("survey", "group", "region"):
        common = [(name, part) for name, own in PARTS.items() if own == part and generator.random() < 0.4]
        drawn += common + [(f"{part}{i}", part) for i in range(generator.randint(0, 2))]
    return drawn[:8] if not set(drawn) <= set(PARTS.items()) else list(PARTS.items())


def when_always(value: Any) -> list[Row]:
    return [{"when": {}, "value": value}]


def draw_cost(generator: random.Random, sizes: list[str], attributes: Row) -> Row:
    def draw_table(draw: Any) -> list[Row]:
        if attributes and generator.random() < 0.5:
            name = generator.choice(sorted(attributes))
            return [{"when": {name: value}, "value": draw()} for value in attributes[name]]
        return when_always(draw())

    def draw_sum() -> Any:
        if generator.random() < 0.5:
            return {"postfix": draw_formula(generator, sizes)}
        return [[generator.choice([1.0, 2.0, 4.5]), generator.choices(sizes, k=generator.randint(0, 3))] for _ in range(3)]

    def draw_reads() -> Any:
        if generator.random() < 0.5:  # x and w as they are
            return [[4.0, [sizes[0], sizes[-1]]], [12.0, [sizes[-1], sizes[0]]]]
        return [[4.0, generator.sample(sizes, generator.randint(1, len(sizes)))] for _ in range(generator.randint(1, 3))]

    tables = {"flops": draw_table(draw_sum), "bytes_moved": draw_table(draw_sum), "flop_unit": when_always("fp32")}
    more = {"reads": draw_table(draw_reads), "l2_bytes_per_s": {ARCH: 8e12} if generator.random() < 0.8 else {}}
    return tables | (more if generator.random() < 0.8 else {})


def draw_formula(generator: random.Random, sizes: list[str], depth: int = 3) -> list[Any]:
    """Draw a formula whose value is above 0: divisors are numbers."""
    if depth == 0 or generator.random() < 0.2:
        return [generator.choice([*sizes, 2.0, 7.0])]
    left = draw_formula(generator, sizes, depth - 1)
    operator = generator.choice(["+", "*", "min()", "max()", "/", "-//", "//"])
    if operator in ("/", "-//", "//"):
        return [*left, generator.choice([2.0, 3.0, 64.0]), operator, *([1.0, "+"] if operator == "//" else [])]
    right = draw_formula(generator, sizes, depth - 1)
    if generator.random() < 0.2:
        return [*left, *right, "<", *left, *right, "?:"]
    return [*left, *right, operator]


def draw_manifest(generator: random.Random, name: str, description: Row) -> Row:
    sizes = sorted(description["interface"]["sizes"])
    conditions: list[Row] = [
        {"count": {generator.choice(sizes): 1}, "max": generator.choice([16, 300, 5000])},
        {"count": {generator.choice(sizes): generator.choice([1, 16]), generator.choice(sizes): 4}, "max": 1 << 40},
        {"count": {generator.choice(sizes): 1}, "multiple": generator.choice([2, 8])},
        {"tensor": "x", "address": 16, "stride": 4},
        {"tensor": "x", "max_stride": 2048},
        {"tensor": "y", "address": 8},
        {"tensor": "w", "stride": 2},
        {"tensor": "w", "max_stride": 3000},
    ]
    conditions += [{"attribute": a["name"], "in": generator.sample(a["choices"], 1)} for a in description["interface"]["attributes"]]
    tile = {size: generator.choice([1, 16, 64]) for size in generator.sample(sizes, generator.randint(0, len(sizes)))}
    prior = {"tile": tile, "slots": generator.choice([1, 132]), "flops_per_s": {"fp32": 6e13}, "bytes_per_s": 4.8e12}
    if generator.random() < 0.2:
        prior["flops_per_s"] = {}
    made = {"op": "made_up", "kernel": name, "arch": ARCH, "deterministic": generator.random() < 0.7, "prior": prior}
    made |= {"accumulate": generator.choice(["float32", "float64"])} if generator.random() < 0.6 else {}
    return made | {"domain": generator.sample(conditions, generator.choice([0, 0, 1, 2]))}


def draw_medians(generator: random.Random, description: Row, manifests: dict[str, Row]) -> list[Row]:
    rows = []
    for i in range(generator.randrange(5)):
        sizes, attributes = draw_point(generator, description)
        classes = classify(description, Call(sizes, attributes, {}, {}))
        group = [classes[axis] for axis in list_axes(description, "survey", "group")]
        if None in group:
            continue
        facts = {"kind": "median", "arch": ARCH, "problem": f"p{i}", "sizes": sizes, "attributes": attributes}
        facts["group"] = "/".join(map(str, group)) or "any"
        for name in generator.sample(sorted(manifests), min(len(manifests), 4)):
            mode = generator.choice(["cold", "cold", "hot"])
            rows.append(facts | {"kernel": name, "mode": mode, "median_us": generator.choice([1.0, 2.0, 3.5])})
    return rows


def draw_survey(generator: random.Random, description: Row, manifests: dict[str, Row]) -> Row | None:
    if generator.random() < 0.4:
        return None
    known = sorted(generator.sample(sorted(manifests), generator.randint(1, len(manifests))))
    names = sorted(description["interface"]["sizes"])
    axes = {axis["name"]: [c["name"] for c in axis["classes"]] for axis in description["axes"]}
    groups = []
    surveyed = list_axes(description, "survey")
    for classes in itertools.product(*(axes[axis] for axis in surveyed)):
        timed = sorted(generator.sample(known, generator.randint(1, len(known))))
        points: list[list[Any]] = []
        for _ in range(generator.randrange(4)):
            errors = [None if generator.random() < 0.3 else round(generator.uniform(-0.6, 1.5), 4) for _ in timed]
            points.append([int(2 ** generator.uniform(0, 10)) for _ in names] + errors)
        loose: Row = generator.choice([{}, {"loose": False}, {"loose": True}])
        spoken_for = [(own, *generator.sample(axes[axis], generator.randrange(2))) for axis, own in zip(surveyed, classes, strict=True)]
        name = "/".join("+".join(dict.fromkeys(parts)) for parts in spoken_for) or "any"
        groups += [{"group": name, "kernels": timed, "points": points} | loose] if points else []
    weights = {k: [float(f"{generator.uniform(0, 3):.3g}") for _ in range(generator.randint(5, 7))] for k in known}
    shapes = {k: draw_shape(generator, names) for k in known if generator.random() < 0.5}
    buckets = ["/".join(classes) for classes in itertools.product(*axes.values())]
    apart = {"apart": generator.sample(buckets, min(2, len(buckets)))} if generator.random() < 0.5 else {}
    return {"kind": "survey", "arch": ARCH, "weights": weights, "groups": groups} | ({"shapes": shapes} if shapes else {}) | apart


def draw_shape(generator: random.Random, sizes: list[str]) -> Row:
    """Draw tiles of some sizes that are worked on at once: a number of them that need not be whole."""
    tile = {size: 2 ** generator.randint(0, 8) for size in generator.sample(sizes, generator.randint(0, min(3, len(sizes))))}
    idle = {"idle_us": generator.choice([0.0, 1e-4, 1.0])} if generator.random() < 0.5 else {}
    looked_for = generator.sample(sorted(tile), min(generator.randint(0, 2), len(tile)))
    least = {"least": {size: max(1, tile[size] // generator.choice([1, 2, 64])) for size in looked_for}} if looked_for else {}
    return {"tile": tile, "slots": generator.choice([1.0, 16.5, 264.0])} | idle | least


def draw_point(generator: random.Random, description: Row) -> tuple[dict[str, int], Row]:
    sizes = {
        n: max(1, int(2 ** generator.uniform(0, 10)) // generator.choice([1, 8]) * 8) for n in sorted(description["interface"]["sizes"])
    }
    return sizes, {a["name"]: generator.choice(a["choices"]) for a in description["interface"]["attributes"]}


def draw_call(generator: random.Random, made: MadeUpSet) -> Call:
    """Draw a call: often one that was measured or surveyed, or near one."""
    sizes, attributes = draw_point(generator, made.description)
    if made.medians and generator.random() < 0.5:
        median = generator.choice(made.medians)
        sizes, attributes = dict(median["sizes"]), dict(median["attributes"])
        if generator.random() < 0.6:
            sizes = {n: max(1, math.ceil(size * 2 ** generator.uniform(-1.5, 1.5))) for n, size in sizes.items()}
    surveyed = [point for group in (made.survey or {"groups": []})["groups"] for point in group["points"]]
    if surveyed and generator.random() < 0.2:
        sizes = dict(zip(sorted(sizes), generator.choice(surveyed), strict=False))
    is_aligned = generator.random() < 0.6
    row = sizes[list(made.description["interface"]["sizes"])[-1]]
    addresses = {name: 4096 * (i + 1) + (0 if is_aligned else generator.choice([0, 4, 8])) for i, name in enumerate(("x", "y"))}
    addresses["w"] = 1 << 20
    last = sizes[next(iter(made.description["interface"]["sizes"]))]
    heads = (3 * last, last, 1) if is_aligned else (generator.choice([3 * last, 6 * last]), generator.choice([last, 2 * last]), 1)
    return Call(sizes, attributes, addresses, {"x": row + (0 if is_aligned else generator.choice([0, 1, 4])), "w": heads})
