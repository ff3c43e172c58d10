"""From a graph to a plan: steps in the graph's order, places for values, and waits between streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aicf.ir import Graph, Node, State, Value
from aicf.opset import Attr, Attrs, Type, find_op
from aicf.plan.arena import align, place
from aicf.plan.data import ARENA, CONSTANT, GIVEN, GRADIENT, INPUT, OUTPUT, REGIONS, STATE, Plan, Slot, StateSlot, Step
from aicf.plan.intake import find_intake
from aicf.plan.lists import find_last_reads, find_lists, find_member_bytes, find_roots
from aicf.plan.schedule import Clocks, find_conflicts, find_lower_bound

if TYPE_CHECKING:
    from aicf.passes.context import Choice

# States lie by role, parameters first, each role in owner order: what an optimizer changes together is together.
_ROLE_ORDER = ("parameter", "exp_avg", "exp_avg_sq", "momentum", "master", "copy", "buffer", "control", "random", "observation")


def make_plan(graph: Graph, backend: str, choices: Mapping[int, Choice] | None = None, streams: Mapping[int, int] | None = None) -> Plan:
    """Return the plan of a graph. ``choices`` are kernels by node id; ``streams`` says which stream a node runs on, 0 by default."""
    return _Planner(graph, backend, choices or {}, streams or {}).plan()


@dataclass
class _Draft:
    """A step whose values have no places yet."""

    node: int
    op: str
    attrs: Attrs
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    stream: int
    depends: set[int] = field(default_factory=set)
    waits: tuple[int, ...] = ()
    workspace: int | None = None  # the buffer's number


class _Planner:
    def __init__(self, graph: Graph, backend: str, choices: Mapping[int, Choice], streams: Mapping[int, int]) -> None:
        self.graph, self.backend, self.choices, self.streams = graph, backend, choices, streams
        self.nodes = {node.id: node for node in graph.nodes}
        self.buffer_of: dict[int, int] = {}  # views have their source's
        self.places: dict[int, tuple[str, int]] = {}  # by buffer
        self.sizes = dict.fromkeys(REGIONS, 0)
        self.drafts: list[_Draft] = []
        self.next_buffer = graph.next_id
        self.arena_sizes: dict[int, int] = {}
        self.joined: dict[int, int] = {}  # buffers in the arena that another one takes the bytes of
        self.lower_bound = 0

    def plan(self) -> Plan:
        self.lists = find_lists(self.graph)
        self._place_states()
        self.taken_in = find_intake(self.graph)
        inputs = [self.taken_in[value.id].outputs[0] if value.id in self.taken_in else value for _, value in self.graph.inputs]
        for value in inputs:
            self._put(INPUT, value)
        constants = self._place_constants()
        self._place_lists()
        outputs = self._draft()
        self._join_in_place()
        clocks = self._order()
        self._place_arena(clocks)
        steps = tuple(self._finish(draft) for draft in self.drafts)
        return Plan(
            self.graph.name,
            self.backend,
            steps,
            tuple((name, self._slot(value)) for (name, _), value in zip(self.graph.inputs, inputs, strict=True)),
            tuple(self._slot(value) for value in outputs),
            tuple(StateSlot(s.owner, s.role, self._slot(s.value)) for s in self._sort_states()),
            constants,
            self.sizes,
            self.lower_bound,
            tuple(self._finish_intake(node) for node in self.taken_in.values()),
        )

    # ---- places that do not depend on lifetimes

    def _put(self, region: str, value: Value, *, is_member: bool = False) -> None:
        self.buffer_of[value.id] = value.id
        self.places[value.id] = (region, self.sizes[region])
        self.sizes[region] += find_member_bytes(value.type) if is_member else align(value.type.size_bytes)

    def _sort_states(self) -> list[State]:
        """Return the states by role; in a role those first that flat launches read as one, in their order."""
        ranks = {role: i for i, role in enumerate(_ROLE_ORDER)}
        places: dict[int, tuple[int, int]] = {}
        for i, members in enumerate(self.lists):
            for j, value in enumerate(members):
                places.setdefault(value.id, (i, j))
        last = (len(self.lists), 0)
        return sorted(self.graph.states, key=lambda s: (ranks.get(s.role, len(ranks)), places.get(s.value.id, last)))

    def _place_states(self) -> None:
        for state in self._sort_states():
            self._put(STATE, state.value, is_member=state.value.type.is_float)

    def _place_lists(self) -> None:
        """Place what flat launches read or write, and is no state, as a list of its own each."""
        held = {s.value.id for s in self.graph.states}
        for members in self.lists:
            for value in members:
                if value.id not in held and value.id not in self.places:
                    self.places[value.id] = (GRADIENT, self.sizes[GRADIENT])
                    self.sizes[GRADIENT] += find_member_bytes(value.type)

    def _place_constants(self) -> tuple[tuple[Slot, Attr], ...]:
        found = []
        for node in self.graph.nodes:
            if node.op == "Full":
                self._put(CONSTANT, node.outputs[0])
                found.append((self._slot(node.outputs[0]), node.attrs["value"]))
        return tuple(found)

    def _slot(self, value: Value) -> Slot:
        buffer = self.buffer_of[value.id]
        region, offset = self.places[buffer]
        return Slot(buffer, region, offset, value.type)

    # ---- steps

    def _draft(self) -> list[Value]:
        """Draft the steps; returns the values that are the plan's outputs, each with bytes of its own."""
        roots = find_roots(self.graph)
        updates = {roots.get(new.id, new.id): state for state, new in self.graph.updates}
        last_read = find_last_reads(self.graph)
        written = set()
        brought = {node.id for node in self.taken_in.values()}
        for i, node in enumerate(self.graph.nodes):
            op = find_op(node.op)
            if node.id in brought:
                continue
            if op.is_view:
                assert node.inputs[0] is not None
                self.buffer_of[node.outputs[0].id] = self.buffer_of[node.inputs[0].id]
            elif node.op != "Full":
                self._draft_node(node)
                for value in node.outputs:
                    state = updates.get(value.id)
                    if state is not None and state.id not in written and self._may_overwrite(node, i, value, state, last_read):
                        self.places[value.id] = self.places[self.buffer_of[state.id]]
                        written.add(state.id)
        outputs = self._copy_outputs()
        # A state that stays as it is needs no copy.
        copies = [(s, new) for s, new in self.graph.updates if s.id not in written and self.buffer_of[new.id] != s.id]
        held = {s.value.id for s in self.graph.states}
        for i, (state, new) in enumerate(copies):
            if self.buffer_of[new.id] in held:  # it may be overwritten before it is read
                kept = Value(self._make_buffer(), new.type)
                self.buffer_of[kept.id] = kept.id
                self._draft_copy(new, kept)
                copies[i] = (state, kept)
        for state, new in copies:
            target = Value(self._make_buffer(), state.type)
            self.buffer_of[target.id] = target.id
            self.places[target.id] = self.places[self.buffer_of[state.id]]
            self._draft_copy(new, target)
        return outputs

    def _may_overwrite(self, node: Node, at: int, value: Value, state: Value, last_read: Mapping[int, int]) -> bool:
        """Whether a node may write what a state becomes straight into the state's bytes."""
        if value.id in self.places or last_read.get(state.id, -1) > at:
            return False
        readers = {i for i, v in enumerate(node.inputs) if v is not None and self.buffer_of[v.id] == state.id}
        return readers <= {find_op(node.op).find_taken(node.outputs.index(value), len(node.inputs), node.attrs)}

    def _draft_node(self, node: Node) -> None:
        draft = _Draft(node.id, node.op, node.attrs, node.inputs, node.outputs, self.streams.get(node.id, 0))
        for value in node.outputs:
            self.buffer_of[value.id] = value.id
        choice = self.choices.get(node.id)
        if choice is not None and choice.workspace_bytes:
            draft.workspace = self._make_buffer()
            self.arena_sizes[draft.workspace] = choice.workspace_bytes
        self.drafts.append(draft)

    def _copy_outputs(self) -> list[Value]:
        """Give each output bytes of its own in the region of outputs; what already has a place elsewhere is copied there."""
        found = []
        for value in self.graph.outputs:
            buffer = self.buffer_of[value.id]
            if buffer in self.places or buffer != value.id:
                value, source = Value(self._make_buffer(), value.type), value
                self._put(OUTPUT, value)
                self._draft_copy(source, value)
            else:
                self._put(OUTPUT, value)
            found.append(value)
        return found

    def _join_in_place(self) -> None:
        """Put what a step changes in place, and nobody else reads, where the step's output is: nothing is copied then."""
        reads = Counter(self.buffer_of[v.id] for draft in self.drafts for v in draft.inputs if v is not None)
        for draft in reversed(self.drafts):
            op = find_op(draft.op)
            for i, made in enumerate(draft.outputs):
                at = op.find_taken(i, len(draft.inputs), draft.attrs)
                taken = None if at is None else draft.inputs[at]
                if taken is None or self.buffer_of[taken.id] != taken.id or taken.id in self.places or reads[taken.id] > 1:
                    continue
                target = self.joined.get(made.id, made.id)
                if target not in self.places:
                    self.joined[taken.id] = target
                elif self.places[target][0] in (GRADIENT, OUTPUT):  # nobody reads these bytes before; a state's are read
                    self.places[taken.id] = self.places[target]

    def _draft_copy(self, source: Value, target: Value) -> None:
        self.drafts.append(_Draft(self._make_buffer(), "Copy", {}, (source,), (target,), 0))

    def _make_buffer(self) -> int:
        self.next_buffer += 1
        return self.next_buffer - 1

    # ---- order and lifetimes

    def _order(self) -> Clocks:
        """Find what each step waits for: those that make what it reads, and those that read or write what it overwrites."""
        clocks = Clocks(max((d.stream for d in self.drafts), default=0) + 1)
        writers: dict[int, int] = {}
        touched: dict[tuple[str, int], list[int]] = {}  # by place outside of the arena
        for i, draft in enumerate(self.drafts):
            read = [self.buffer_of[v.id] for v in draft.inputs if v is not None]
            depends = {writers[b] for b in read if b in writers}
            places = {b: self.places[b] for b in (*read, *(v.id for v in draft.outputs)) if b in self.places}
            for value in draft.outputs:
                if value.id in places:
                    depends |= set(touched.get(places[value.id], ()))
                writers[value.id] = i
            for where in places.values():
                touched.setdefault(where, []).append(i)
            draft.waits = clocks.add(draft.stream, sorted(depends))
        return clocks

    def _place_arena(self, clocks: Clocks) -> None:
        writers: dict[int, int] = {}
        accesses: dict[int, list[int]] = {}
        sizes = self.arena_sizes
        for i, draft in enumerate(self.drafts):
            for value in draft.outputs:
                if value.id not in self.places:
                    buffer = self.joined.get(value.id, value.id)
                    writers.setdefault(buffer, i)
                    accesses.setdefault(buffer, []).append(i)
                    sizes[buffer] = value.type.size_bytes
            for read in draft.inputs:
                buffer = -1 if read is None else self.buffer_of[read.id]
                buffer = self.joined.get(buffer, buffer)
                if buffer in accesses:
                    accesses[buffer].append(i)
            if draft.workspace is not None:
                writers[draft.workspace], accesses[draft.workspace] = i, [i]
        buffers = list(writers)
        steps = [writers[b] for b in buffers]
        uses: Sequence[Sequence[int]] = [accesses[b] for b in buffers]
        aligned = [align(sizes[b]) for b in buffers]
        self.lower_bound = find_lower_bound(clocks, steps, uses, aligned)
        spans = [max(u) - min(u) + 1 for u in uses]
        offsets, self.sizes[ARENA] = place(aligned, spans, find_conflicts(clocks, steps, uses), self.lower_bound)
        self.places |= {buffer: (ARENA, offset) for buffer, offset in zip(buffers, offsets, strict=True)}
        self.places |= {buffer: self.places[target] for buffer, target in self.joined.items()}

    def _finish_intake(self, node: Node) -> Step:
        step = self._finish(_Draft(node.id, node.op, node.attrs, (), node.outputs, 0))
        return replace(step, inputs=tuple(None if v is None else Slot(v.id, GIVEN, 0, v.type) for v in node.inputs))

    def _finish(self, draft: _Draft) -> Step:
        node, choice = self.nodes.get(draft.node), self.choices.get(draft.node)
        workspace = None
        if draft.workspace is not None:
            region, offset = self.places[draft.workspace]
            workspace = Slot(draft.workspace, region, offset, Type("uint8", (self.arena_sizes[draft.workspace],)))
        return Step(
            draft.node,
            draft.op,
            draft.attrs,
            tuple(None if v is None else self._slot(v) for v in draft.inputs),
            tuple(self._slot(v) for v in draft.outputs),
            draft.stream,
            draft.waits,
            workspace,
            choice.kernel if choice else "",
            choice.seal if choice else "",
            choice.predicted_us if choice else None,
            node.owner if node else "",
            node.source if node else "",
        )
