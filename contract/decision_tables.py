"""What the decision core knows about an op's kernels on one architecture: rows of the frozen set as the plain lists of ``decide.h``.

The same lists are handed to the compiled core (:mod:`contract.decision`) and rendered as C text for the deployed library
(:mod:`contract.decision_text`). Sizes and attributes are in the order of their names, tensors in that of the interface.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contract import decision_structs as c
from contract.axes import split_survey_group
from contract.calls import Interface, Problem, find_row
from contract.conditions import make_condition
from contract.decision_names import Names, make_conditions
from contract.errors import FrozenError
from contract.formulas import list_tokens, make_steps

Row = Mapping[str, Any]
# Times of one group, all axes but the region, may stand for each other; errors of a survey depend on dtypes and layout alone.
_NONE = -1


@dataclass
class DecisionTable:
    """The lists and numbers of an ``AicfTable``, with what the numbers stand for.

    ``kernels`` are names; ``conditions`` has by condition of the kernels' domains the row that it is part of; ``problems`` are the names
    of the points; ``dtypes`` are those that sums are made in, numbered from 1 on.
    """

    arch: str
    names: Names
    kernels: tuple[str, ...]
    conditions: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    lists: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in c.LISTS})
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(c.NUMBERS, 0))
    l2_bytes_per_s: float = 0.0
    surveyed: int = 0

    def fill_mask(self, kernels: int) -> Any:
        """Return a mask, given as a number, as the core has it."""
        return c.Masks.from_buffer_copy(kernels.to_bytes(8 * c.MASK_WORDS, "little"))


def make_table(
    arch: str,
    description: Row,
    entries: Iterable[Row],
    medians: Iterable[Row],
    survey: Row | None,
    manifests: Mapping[str, Row],
) -> DecisionTable:
    """Return the table of an architecture, from rows of the index and the manifests of the kernels that its entries name.

    Rows of other architectures, and medians of kernels that win nothing or of mode ``hot``, are passed over. Raises
    :class:`FrozenError` where rows disagree with the op's description.
    """
    own = [e for e in entries if e["bucket"]["arch"] == arch and manifests[e["kernel"]]["arch"] == arch]
    kernels = tuple(sorted({e["kernel"] for e in own}))
    names = Names.of(description)
    if len(kernels) > c.MAX_KERNELS:
        raise FrozenError(f"{names.op}: {len(kernels)} kernels for {arch}; at most {c.MAX_KERNELS} are supported")
    table = DecisionTable(arch, names, kernels)
    place = {name: i for i, name in enumerate(kernels)}
    cost = description["cost"]
    _add_domains(table, [manifests[name]["domain"] for name in kernels])
    _add_classes(table)
    _add_cost(table, cost)
    units = sorted({row["value"] for row in cost["flop_unit"]}) if cost else []
    if len(units) > c.MAX_UNITS:
        raise FrozenError(f"{names.op}: {len(units)} units of flops; at most {c.MAX_UNITS} are supported")
    table.dtypes = sorted({str(manifests[name]["accumulate"]) for name in kernels if manifests[name].get("accumulate")})
    for name in kernels:
        table.lists["kernels"].append(_make_kernel(table, manifests[name], units))
        table.lists["models"].append(make_model(names, manifests[name]["prior"]))
    _add_entries(table, own, place)
    # A fallback's times say nothing against winners that were not measured beside it.
    winning = {e["kernel"] for e in own if e["role"] == "winner"}
    _add_points(table, [m for m in medians if m["arch"] == arch and m["mode"] == "cold" and m["kernel"] in winning], place)
    if survey is not None and cost is not None:
        _add_survey(table, survey, place)
    table.numbers |= {
        "num_sizes": len(names.sizes),
        "num_attributes": len(names.attributes),
        "num_tensors": len(names.tensors),
        "num_axes": len(names.classes),
        "num_group_axes": names.axes.num_group,
        "num_survey_axes": names.axes.num_survey,
        "num_conditions": len(table.conditions),
    }
    for key in ("kernels", "classes", "winners", "fallbacks", "points", "flops", "bytes", "units", "reads", "survey_points"):
        table.numbers[f"num_{key}"] = len(table.lists[key])
    return table


def _add_domains(table: DecisionTable, domains: Sequence[Sequence[Row]]) -> None:
    """Add each different condition once, with the kernels that ask for it."""
    found: dict[str, tuple[Row, int]] = {}
    for i, domain in enumerate(domains):
        for row in domain:
            key = json.dumps(row, sort_keys=True)
            found[key] = (row, found.get(key, (row, 0))[1] | 1 << i)
    for _, (row, kernels) in sorted(found.items()):
        for condition in make_conditions(table.names, row):
            condition.kernels = table.fill_mask(kernels)
            table.lists["conditions"].append(condition)
            table.conditions.append(row)


def _add_classes(table: DecisionTable) -> None:
    for axis, classes in enumerate(table.names.classes):
        for number, each in enumerate(classes):
            first = len(table.lists["conditions"])
            for row in each["when"]:
                table.lists["conditions"] += make_conditions(table.names, row)
            table.lists["classes"].append(c.AicfClass(axis, number, first, len(table.lists["conditions"]) - first))


def _make_kernel(table: DecisionTable, manifest: Row, units: Sequence[str]) -> c.AicfKernel:
    prior, accumulate = manifest["prior"], manifest.get("accumulate")
    made = c.AicfKernel(deterministic=bool(manifest["deterministic"]), slots=prior["slots"], bytes_per_s=prior["bytes_per_s"])
    made.accumulate = 1 + table.dtypes.index(accumulate) if accumulate else 0
    for name, edge in prior["tile"].items():
        made.edges[table.names.sizes.index(name)] = edge
    for i, unit in enumerate(units):
        made.flops_per_s[i] = prior["flops_per_s"].get(unit, 0.0)
    return made


def make_model(names: Names, shape: Row) -> c.AicfModel:
    """Return what a survey's ``shape`` of a kernel, or a manifest's ``prior``, says of the tiles that are worked on at once."""
    made = c.AicfModel(slots=float(shape["slots"]), idle_us=float(shape.get("idle_us", -1.0)))
    for name, edge in shape["tile"].items():
        made.edges[names.sizes.index(name)] = edge
    for name, edge in shape.get("least", {}).items():
        made.least[names.sizes.index(name)] = edge
    return made


def _add_entries(table: DecisionTable, entries: Sequence[Row], place: Mapping[str, int]) -> None:
    winners = set()
    for entry in (e for e in entries if e["role"] == "winner"):
        classes = tuple(table.names.find_class(axis, entry["bucket"][name]) for axis, name in enumerate(table.names.axes.names))
        winners.add((place[entry["kernel"]], classes))
    for kernel, classes in sorted(winners):
        table.lists["winners"].append(_fill(c.AicfWinner(kernel=kernel), classes=classes))
    table.lists["fallbacks"] = sorted({place[e["kernel"]] for e in entries if e["role"] == "fallback"})


def _add_cost(table: DecisionTable, cost: Row | None) -> None:
    if cost is None:
        return
    names, lists = table.names, table.lists
    table.l2_bytes_per_s = float((cost.get("l2_bytes_per_s") or {}).get(table.arch, 0.0))

    known: dict[tuple[float | str, ...], tuple[int, int]] = {}

    def add_formula(formula: Any) -> tuple[int, int]:
        tokens = tuple(list_tokens(formula))
        if tokens not in known:
            steps = make_steps(tokens, names.sizes)
            known[tokens] = (len(lists["steps"]), len(steps))
            lists["steps"] += steps
        return known[tokens]

    def add_inputs(terms: Sequence[Any]) -> tuple[int, int]:
        for term in terms:
            shape = sum(1 << names.sizes.index(size) for size in set(term[1]))
            lists["inputs"].append(c.AicfInput(*add_formula([term]), shape, -1, 0))
        return len(lists["inputs"]) - len(terms), len(terms)

    units = sorted({row["value"] for row in cost["flop_unit"]})
    _add_rows(table, "flops", cost["flops"], add_formula)
    _add_rows(table, "bytes", cost["bytes_moved"], add_formula)
    _add_rows(table, "units", cost["flop_unit"], lambda unit: (units.index(unit), 0))
    _add_rows(table, "reads", cost.get("reads", ()), add_inputs)
    for row, made in zip(cost.get("reads", ()), lists["reads"], strict=True):
        for at, (term, (tensor, shape)) in enumerate(zip(row["value"], _list_inputs(names.interface, row), strict=False), made.first):
            if shape == list(term[1]):
                lists["inputs"][at].tensor = names.tensors.index(tensor)
                lists["inputs"][at].item_bytes = int(term[0])


def _list_inputs(interface: Row, reads: Row) -> list[tuple[str, list[Any]]]:
    """Return the names and the shapes of the inputs that are there: the terms of a row of ``reads`` stand for them in turn.

    Attributes that the row does not name have their defaults. Empty where there are not as many inputs as terms.
    """
    attributes = {a["name"]: a["default"] for a in interface["attributes"]} | dict(reads["when"])
    inputs = [t for t in interface["tensors"] if t["role"] != "output" and find_row(t["present"], attributes)]
    if len(inputs) != len(reads["value"]):
        return []
    return [(t["name"], list(find_row(t["shape"], attributes) or ())) for t in inputs]


def _add_rows(table: DecisionTable, name: str, rows: Sequence[Row], add: Callable[[Any], tuple[int, int]]) -> None:
    for row in rows:
        strangers = set(row["when"]) - set(table.names.attributes)
        if strangers:
            raise FrozenError(f"{table.names.op}: cost: there is no attribute {min(strangers)}")
        first, count = add(row["value"])
        when = [table.names.find_choice(a, row["when"][a]) if a in row["when"] else _NONE for a in table.names.attributes]
        table.lists[name].append(_fill(c.AicfRow(first=first, count=count), when=when))


def _add_points(table: DecisionTable, medians: Sequence[Row], place: Mapping[str, int]) -> None:
    """Add measured problems in the order of their names, each with its times, the fastest first."""
    names, find_regions = table.names, _find_regions(table.names)
    found: dict[tuple[Any, ...], set[tuple[float, int]]] = {}
    for row in medians:
        if sorted(row["sizes"]) != list(names.sizes) or set(row["attributes"]) != set(names.attributes):
            raise FrozenError(
                f"{names.op}: index.jsonl: the median of {row['kernel']} on {row['problem']} has other sizes or attributes than the op"
            )
        group = [names.find_class(axis, name) for axis, name in enumerate(row["group"].split("/")[: names.axes.num_group])]
        classes = (*group, *find_regions(row))
        key = (row["problem"], classes, tuple(names.list_sizes(row["sizes"])), tuple(names.list_choices(row["attributes"])))
        found.setdefault(key, set()).add((float(row["median_us"]), place[row["kernel"]]))
    for (problem, classes, sizes, choices), times in sorted(found.items()):
        point = _fill(c.AicfPoint(first=len(table.lists["times"]), count=len(times)), classes=classes, sizes=sizes, attributes=choices)
        _fill(point, logs=find_logs(sizes))
        point.kernels = table.fill_mask(sum(1 << k for k in {k for _, k in times}))
        table.lists["points"].append(point)
        table.lists["times"] += [c.AicfTime(kernel, us) for us, kernel in sorted(times)]
        table.problems.append(problem)


def _find_regions(names: Names) -> Callable[[Row], list[int]]:
    """Return what finds the region of a measured problem, whose rows follow each other: its class on each axis of that, -1 for none."""
    interface = Interface(names.op, names.interface)
    axes = [[[make_condition(row) for row in each["when"]] for each in axis] for axis in names.classes[names.axes.num_group :]]

    def find(problem: Row) -> list[int]:
        query = interface.make_query(Problem(problem["sizes"], problem["attributes"]))
        return [next((i for i, conditions in enumerate(axis) if all(holds(query) for holds in conditions)), _NONE) for axis in axes]

    return find


def find_logs(sizes: Iterable[float]) -> list[float]:
    """Return log2 of sizes. math.log2 is the C library's, as in the core; NumPy's own may round otherwise."""
    return [math.log2(float(size)) for size in sizes]


def _add_survey(table: DecisionTable, survey: Row, place: Mapping[str, int]) -> None:
    names, num_sizes = table.names, len(table.names.sizes)
    known = {name: i for name, i in place.items() if name in survey["weights"]}
    if not known:
        return
    table.numbers["has_survey"], table.surveyed = 1, sum(1 << i for i in known.values())
    for name in table.kernels:
        weights = survey["weights"].get(name, ())
        table.lists["weights"] += [*weights, *[0.0] * (c.NUM_TERMS - len(weights))]
        if name in survey.get("shapes", {}):
            table.lists["models"][place[name]] = make_model(names, survey["shapes"][name])
    apart = {tuple(names.find_class(axis, name) for axis, name in enumerate(bucket.split("/"))) for bucket in survey.get("apart", ())}
    for winner in table.lists["winners"]:
        winner.is_apart = tuple(winner.classes[: len(names.axes.names)]) in apart
    for group in survey["groups"]:
        classes = [
            sum(1 << number for name in parts if (number := names.find_class(axis, name)) >= 0)
            for axis, parts in enumerate(split_survey_group(group["group"])[: names.axes.num_survey])
        ]
        columns = {known[name]: num_sizes + i for i, name in enumerate(group["kernels"]) if name in known}
        for point in group["points"]:
            _check_point(names, group, point)
            made = c.AicfSurveyPoint(is_loose=int(group.get("loose", _NONE)))
            table.lists["survey_points"].append(_fill(made, classes=classes, logs=find_logs(point[:num_sizes])))
            errors = (point[columns[k]] if k in columns else None for k in range(len(table.kernels)))
            table.lists["errors"] += [math.nan if error is None else float(error) for error in errors]


def _check_point(names: Names, group: Row, point: Sequence[Any]) -> None:
    num_sizes = len(names.sizes)
    sizes = point[:num_sizes]
    if len(point) != num_sizes + len(group["kernels"]) or any(size is None or not size >= 1 for size in sizes):
        raise FrozenError(
            f"{names.op}: index.jsonl: survey: group {group['group']}: a point must have {num_sizes} sizes of at least 1 and "
            f"{len(group['kernels'])} errors, one by kernel"
        )


def _fill(struct: Any, **lists: Iterable[Any]) -> Any:
    """Return the struct with the first elements of its arrays set."""
    for name, values in lists.items():
        target = getattr(struct, name)
        for i, value in enumerate(values):
            target[i] = value
    return struct


def assemble(table: DecisionTable) -> tuple[c.AicfTable, list[Any]]:
    """Return the table as the core takes it, and the arrays that it points to, which must live as long."""
    made, kept = c.AicfTable(**table.numbers), []
    made.l2_bytes_per_s, made.surveyed = table.l2_bytes_per_s, table.fill_mask(table.surveyed)
    for name, kind in c.LISTS.items():
        array = (kind * len(table.lists[name]))(*table.lists[name])
        kept.append(array)
        setattr(made, name, ctypes.cast(array, ctypes.POINTER(kind)))
    return made, kept
