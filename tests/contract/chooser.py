"""Who is chosen for a call, written down from docs/frozen.md once more, straightforwardly: the compiled decision must agree."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARTS = {"dtypes": "survey", "layout": "survey", "epilogue": "group", "region": "region"}


@dataclass(frozen=True)
class Call:
    """A call of an op: sizes, attributes, and per present tensor its address and, in elements, its row stride or all its strides."""

    sizes: Mapping[str, int]
    attributes: Mapping[str, Any]
    addresses: Mapping[str, int]
    strides: Mapping[str, int | tuple[int, ...]]


def holds(row: Mapping[str, Any], call: Call) -> bool:
    if "attribute" in row:
        return any(call.attributes[row["attribute"]] == value for value in row["in"])
    if "count" in row:
        count = math.prod(-(-call.sizes[name] // step) for name, step in row["count"].items())
        return row.get("min", 1) <= count <= row.get("max", count) and count % row.get("multiple", 1) == 0
    if row["tensor"] not in call.addresses:
        return True
    stride = call.strides.get(row["tensor"], ())
    outer = (stride,) if isinstance(stride, int) else stride[:-1]
    fits = all(s % row.get("stride", 1) == 0 and s <= row.get("max_stride", s) for s in outer)
    return fits and call.addresses[row["tensor"]] % row.get("address", 1) == 0


# What was found before in a table, with the table: no other may get its place in memory meanwhile.
_found: dict[tuple[int, tuple[Any, ...]], tuple[Any, Any]] = {}


def look_up(table: Sequence[Mapping[str, Any]], attributes: Mapping[str, Any]) -> Any:
    """Return the value of the only row that holds for the attributes; what was found before is looked up no more: tables are long."""
    key = (id(table), tuple(attributes.items()))
    known = _found.get(key)
    if known is None:
        (value,) = [row["value"] for row in table if all(attributes[k] == v for k, v in row["when"].items())]
        known = _found[key] = (table, value)
    return known[1]


def find_sum(formula: Any, sizes: Mapping[str, int]) -> float:
    """Return the value of a sum of products, or of a formula in postfix order."""
    if not isinstance(formula, Mapping):
        return float(sum(c * math.prod([float(sizes[s]) for s in names]) for c, names in formula))
    stack: list[float] = []
    for token in formula["postfix"]:
        if token == "?:":
            otherwise, then, condition = stack.pop(), stack.pop(), stack.pop()
            stack.append(then if condition else otherwise)
        elif token in ("+", "-", "*", "/", "//", "-//", "min()", "max()", "<"):
            b, a = stack.pop(), stack.pop()
            results = {"+": a + b, "-": a - b, "*": a * b, "min()": min(a, b), "max()": max(a, b), "<": float(a < b)}
            stack.append(results[token] if token in results else {"/": a / b, "//": a // b, "-//": -(-a // b)}[token])
        else:
            stack.append(float(sizes[token]) if isinstance(token, str) else float(token))
    (value,) = stack
    return value


def list_axes(op: Mapping[str, Any], *parts: str) -> list[str]:
    """The names of an op's axes of some parts, in order."""
    return [axis["name"] for axis in op["axes"] if (axis.get("part") or PARTS[axis["name"]]) in parts]


def classify(op: Mapping[str, Any], call: Call) -> dict[str, str | None]:
    found = {}
    for axis in op["axes"]:
        found[axis["name"]] = next((c["name"] for c in axis["classes"] if all(holds(w, call) for w in c["when"])), None)
    return found


def estimate_us(op: Mapping[str, Any], manifest: Mapping[str, Any], call: Call) -> float:
    prior, cost = manifest["prior"], op["cost"] or {}
    flops = bytes_moved = compute = traffic = 0.0
    if op["cost"]:
        flops, bytes_moved = (find_sum(look_up(op["cost"][key], call.attributes), call.sizes) for key in ("flops", "bytes_moved"))
        rate = prior["flops_per_s"].get(look_up(op["cost"]["flop_unit"], call.attributes), 0.0)
        compute = flops / rate if rate else 0.0
    factor = 1.0
    if prior["tile"]:
        tiles = math.prod(-(-call.sizes[name] // edge) for name, edge in prior["tile"].items())
        factor = -(-tiles // prior["slots"]) * prior["slots"] / tiles
        if manifest["arch"] in cost.get("l2_bytes_per_s", {}):
            for item, names in look_up(cost["reads"], call.attributes):
                again = [float(-(-call.sizes[name] // edge)) for name, edge in sorted(prior["tile"].items()) if name not in names]
                traffic += math.prod([item, *(float(call.sizes[s]) for s in names), *again])
            traffic /= cost["l2_bytes_per_s"][manifest["arch"]]
    return max(compute, bytes_moved / prior["bytes_per_s"], traffic) * factor * 1e6


def list_parts_off(op: Mapping[str, Any], call: Call, reads: Sequence[Any]) -> list[float]:
    """Return by input how many more parts than one each line of 128 bytes of its rows begins in."""
    row = next(r for r in op["cost"]["reads"] if r["value"] is reads)
    attributes = {a["name"]: a["default"] for a in op["interface"]["attributes"]} | row["when"]
    inputs = [t for t in op["interface"]["tensors"] if t["role"] != "output" and look_up(t["present"], attributes)]
    if len(inputs) != len(reads):
        return [0.0] * len(reads)
    found = []
    for tensor, (item, names) in zip(inputs, reads, strict=True):
        stride = call.strides.get(tensor["name"], 0)
        common = stride if isinstance(stride, int) else math.gcd(*stride[:-1])
        part = math.gcd(common * int(item), 128) if look_up(tensor["shape"], attributes) == names else 128
        found.append(128 // max(part, 8) - 1.0)
    return found


def predict_us(
    op: Mapping[str, Any], survey: Mapping[str, Any], manifest: Mapping[str, Any], call: Call, classes: Mapping[str, Any]
) -> float:
    """Return what a survey predicts of a kernel: its model's terms with their weights, set right by the problems of the call's group."""
    prior, cost, name = manifest["prior"], op["cost"], manifest["kernel"]
    shape = survey.get("shapes", {}).get(name, prior)
    flops, num_bytes = (find_sum(look_up(cost[key], call.attributes), call.sizes) for key in ("flops", "bytes_moved"))
    rate = prior["flops_per_s"].get(look_up(cost["flop_unit"], call.attributes), math.inf)

    def count(edges: Mapping[str, int]) -> tuple[dict[str, float], float, float]:
        """Return the steps along each edge, the seconds of a tile, and the waves."""
        tile = sorted(edges.items())
        steps = {size: float(-(-call.sizes[size] // edge)) for size, edge in tile}
        tile_s = flops * math.prod(edge / call.sizes[size] for size, edge in tile) / rate
        even, wave_us = math.prod(steps.values()) / shape["slots"], tile_s * shape["slots"] * 1e6
        waves = float(math.ceil(even))
        if (waves - even) * wave_us > shape.get("idle_us", math.inf):
            waves = even + shape["idle_us"] / wave_us
        return steps, tile_s, waves

    edges = dict(shape["tile"])
    for size in sorted(shape.get("least", {})):
        allowed = [shape["tile"][size] - 8 * i for i in range(64) if shape["tile"][size] - 8 * i >= shape["least"][size]]
        if allowed:
            edges[size] = min(allowed, key=lambda edge: count(edges | {size: edge})[2] * (edge + 80))
    steps, tile_s, waves = count(edges)
    tiles = math.prod(steps.values())
    traffic = off_line = 0.0
    if l2 := cost.get("l2_bytes_per_s", {}).get(manifest["arch"]):
        reads = look_up(cost["reads"], call.attributes)
        for (item, names), off in zip(reads, list_parts_off(op, call, reads), strict=True):
            num_read = math.prod([item, *(float(call.sizes[s]) for s in names)])
            again = math.prod(n for size, n in steps.items() if size not in names)
            traffic += num_read * again / l2 * 1e6
            off_line += num_read * off * again / l2 * 1e6
    memory_us = num_bytes / prior["bytes_per_s"] * 1e6
    terms = [1.0, waves, tile_s * (waves * shape["slots"]) * 1e6, memory_us, traffic, off_line, tile_s * tiles * 1e6]
    time = sum(w * term for w, term in zip(survey["weights"][name], terms, strict=False))
    off, says = 0.0, 1.0
    exact: list[float] = []
    sizes = sorted(call.sizes)
    outer = [[s] if isinstance(s, int) else s[:-1] for s in call.strides.values()]
    loose = any(stride % 8 for strides in outer for stride in strides)
    own = [str(classes[axis]) for axis in list_axes(op, "survey")] or ["any"]
    for group in survey["groups"]:
        spoken_for = all(each in part.split("+") for each, part in zip(own, group["group"].split("/"), strict=True))
        if spoken_for and name in group["kernels"]:
            for point in group["points"]:
                error = point[len(sizes) + group["kernels"].index(name)]
                if error is not None:
                    distance = sum((math.log2(p) - math.log2(call.sizes[s])) ** 2 for s, p in zip(sizes, point, strict=False))
                    distance += 16.0 if group.get("loose", loose) != loose else 0.0
                    say = (distance + 0.3) ** -2
                    off, says = off + say * error, says + say
                    exact += [error] if distance == 0.0 else []
    return time * (1.0 + (sum(exact) / len(exact) if exact else off / says))


def choose(
    rows: Sequence[Mapping[str, Any]],
    manifests: Mapping[str, Mapping[str, Any]],
    arch: str,
    call: Call,
    refused: Collection[str] = (),
) -> tuple[str | None, int]:
    """Return the kernel and how it was chosen (1 measured, 2 surveyed, 3 near, 4 prior, 5 fallback), or (None, 0)."""
    op = next(r for r in rows if r["kind"] == "op")
    entries = [r for r in rows if r["kind"] == "entry" and r["bucket"]["arch"] == arch]
    legal = {e["kernel"] for e in entries if all(holds(c, call) for c in manifests[e["kernel"]]["domain"])} - set(refused)
    winning = legal & {e["kernel"] for e in entries if e["role"] == "winner"}
    medians = [r for r in rows if r["kind"] == "median" and r["mode"] == "cold" and r["kernel"] in winning]
    exact = [m for m in medians if m["sizes"] == call.sizes and m["attributes"] == call.attributes]
    if exact:
        return min(exact, key=lambda m: (m["median_us"], m["kernel"]))["kernel"], 1
    classes = classify(op, call)
    axes, group_axes = list(classes), list_axes(op, "survey", "group")
    group = "/".join(str(classes[axis]) for axis in group_axes) or "any"
    for survey in (r for r in rows if r["kind"] == "survey" and r["arch"] == arch and op["cost"]):
        own = {e["kernel"] for e in entries if e["role"] == "winner" and all(e["bucket"][axis] == classes[axis] for axis in axes)}
        asked = {name for name in legal if name in survey["weights"]}
        is_apart = bool(own) and "/".join(str(classes[axis]) for axis in axes) in survey.get("apart", ())
        if asked and own <= survey["weights"].keys() and not is_apart:
            return min((predict_us(op, survey, manifests[name], call, classes), name) for name in asked)[1], 2

    def find_distance(row: Mapping[str, Any]) -> float:
        return float(sum((math.log2(call.sizes[s]) - math.log2(row["sizes"][s])) ** 2 for s in sorted(call.sizes)))

    near = [m for m in medians if m["group"] == group and find_distance(m) <= 9.0]
    winners = [e for e in entries if e["role"] == "winner" and e["kernel"] in legal]

    def find_regions(m: Mapping[str, Any]) -> list[str | None]:
        found = classify(op, Call(m["sizes"], m["attributes"], {}, {}))
        return [found[axis] for axis in list_axes(op, "region")]

    own_near = [m for m in near if find_regions(m) == [classes[axis] for axis in list_axes(op, "region")]]
    own_winners = [e for e in winners if all(e["bucket"][axis] == classes[axis] for axis in axes)]
    for some_near, some_winners in ((own_near, own_winners), (near, winners)):
        if some_near:
            return min(some_near, key=lambda m: (find_distance(m), m["problem"], m["median_us"], m["kernel"]))["kernel"], 3
        if some_winners:
            return min((estimate_us(op, manifests[e["kernel"]], call), e["kernel"]) for e in some_winners)[1], 4
    fallbacks = sorted(e["kernel"] for e in entries if e["role"] == "fallback" and e["kernel"] in legal)
    return (fallbacks[0], 5) if fallbacks else (None, 0)
