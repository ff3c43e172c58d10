"""A plan with its memory: what compiled programs and training steps share."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.errors import StateError, UnsupportedError
from aicf.opset import Type, find_dtype, require_contiguous, type_of
from aicf.plan import Plan
from aicf.plan.data import OUTPUT, STATE
from aicf.runtime import Executor, MismatchError, StepError, StepTime, check_steps, has_states_of, make_executor
from aicf.tensor import Tensor
from aicf.train.copies import Copies
from aicf.train.saving import Saved

if TYPE_CHECKING:  # a program that is loaded needs neither graphs nor passes
    from aicf.ir import Graph
    from aicf.passes import LogEntry

Key = tuple[str, str]


# Whose memory an array that a tensor has is in, by the array; a program keeps its arrays as long as it lives.
_homes: weakref.WeakValueDictionary[int, Compiled] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Report:
    """What :meth:`Compiled.verify_replay` found: how many runs were compared, and the first whose bits differ (None: all are the same)."""

    runs: int
    first_difference: int | None

    def __bool__(self) -> bool:
        return self.first_difference is None


class OtherShapes(Protocol):
    """What runs a program on inputs of shapes that it was not compiled for: :class:`aicf.train.variants.Variants`."""

    @property
    def num_bytes(self) -> int:
        """The bytes of all plans that are kept, without states."""

    @property
    def shapes(self) -> list[str]:
        """The inputs of the plans that are kept."""

    def run(self, arrays: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run the plan for these arrays."""


class Compiled:
    """A plan with its memory. States of a model are views of it: eager and compiled code share the weights.

    ``tensors`` are the states' by (owner, role); without them, as after loading, they are made here. ``recorded`` is the graph as it was
    recorded, ``graph`` as the passes left it, and ``log`` what each of them did; a loaded plan has none of these. With a ``lender``, a
    program of other shapes, states are in that one's memory where both plans have them in the same places (``shares_states``).
    ``variants`` are the programs of other shapes; without them other shapes are refused. ``launches`` are those saved with the plan.
    With ``state``, the bytes of all states (:meth:`Executor.copy_bytes`), the tensors' own values are not looked at.
    """

    def __init__(
        self,
        plan: Plan,
        tensors: Mapping[Key, Tensor] | None = None,
        recorded: Graph | None = None,
        graph: Graph | None = None,
        log: Sequence[LogEntry] = (),
        lender: Compiled | None = None,
        launches: Mapping[str, Any] | None = None,
        state: Any = None,
    ) -> None:
        self._plan: tuple[Plan, Plan] | None = None  # the executor's, and the same with this program
        self.recorded = recorded
        self.graph = graph
        self.log = tuple(log)
        self.variants: OtherShapes | None = None
        home = lender if lender is not None and has_states_of(plan, lender.plan) else None
        self.shares_states = home is not None
        options = {} if launches is None else {"saved": launches}
        self.executor: Executor = make_executor(plan, None if home is None else home.executor, **options)
        self._backend = find_backend(plan.backend)
        written = {slot.offset for step in plan.steps for slot in step.writes if slot.region == STATE}
        self._written = {(s.owner, s.role) for s in plan.own_states if s.slot.offset in written}
        self._views: Mapping[Key, Any] = (
            {(s.owner, s.role): self.executor.view(s.slot) for s in plan.own_states} if home is None else home._views
        )
        self.tensors = {key: Tensor.wrap(view, self._backend) for key, view in self._views.items()} if tensors is None else tensors
        self._outputs = tuple(Tensor.wrap(self.executor.view(slot), self._backend) for slot in plan.outputs)
        self._copies: Copies = Copies(plan, self.executor, self._backend, self.tensors, None if home is None else home._copies)
        if state is not None:
            self.executor.write_bytes(STATE, state)
        if tensors is not None and home is None:
            self.take_over(are_there=state is not None)
        self._held = [(self.tensors[key], view) for key, view in self._views.items()]
        self._changed = [*(self.tensors[key] for key in self._written), *self._outputs]

    def retire(self, reason: str) -> None:
        """Stop: any use raises StateError with the reason. The memory is given back; the states' with the last tensor that is in it.

        Tensors that are in it stay as they are, and nothing is copied: whoever keeps the model keeps the memory of its states.
        """
        # Its arrays are freed, and others may get their ids.
        for view in self._views.values():
            if _homes.get(id(view)) is self:
                del _homes[id(view)]
        self.executor = cast("Executor", _Retired(self.plan, reason))
        self.variants = None
        self._views, self._outputs, self._held, self._changed = {}, (), [], []

    @property
    def plan(self) -> Plan:
        """The plan as it runs: a kernel that cannot be loaded here has been replaced. It saves, profiles and checks this program."""
        plan = self.executor.plan
        if self._plan is None or self._plan[0] is not plan:
            # Weakly: whoever keeps the plan does not keep the memory.
            self._plan = plan, replace(plan, find_program=weakref.ref(self))
        return self._plan[1]

    @property
    def writes_states(self) -> bool:
        """Whether a run changes states."""
        return bool(self._written)

    def take_over(self, *, are_there: bool = False) -> None:
        """Copy each state in, unless they ``are_there``, and make its tensor a view of the plan's memory.

        States of this backend are copied where they are, those of another through host memory. One that
        lives in another program's memory stays there, unless this plan changes it: who trains has the weights.
        """
        for state in self.plan.own_states:
            key = (state.owner, state.role)
            tensor = self.tensors[key]
            if not are_there and tensor.data is not self._views[key]:
                here = tensor.backend is self._backend
                self.executor.write(state.slot, tensor.data if here else tensor.backend.to_host(tensor.data))
            if key in self._written or id(tensor.data) not in _homes:
                tensor.data, tensor.backend = self._views[key], self._backend
                tensor.grad = None
                _homes[id(tensor.data)] = self
        self._copies.forget()

    def _follow_states(self) -> None:
        """Copy in states that live elsewhere: another program of the same model has them in its memory.

        Raises :class:`~aicf.errors.StateError` for one that this plan changes: it would change a copy that nobody reads.
        """
        if all(tensor.data is view for tensor, view in self._held):
            return
        for state in self.plan.own_states:
            key = (state.owner, state.role)
            tensor = self.tensors[key]
            if tensor.data is self._views[key]:
                continue
            if key in self._written:
                raise StateError(
                    f"{self.plan.name}: {state.role} of {state.owner} lives in the memory of a step that was compiled later; "
                    "compile this one again, or use that one"
                )
            here = tensor.backend is self._backend
            self.executor.write(state.slot, tensor.data if here else tensor.backend.to_host(tensor.data))

    def run(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run the plan on inputs, or that of another shape; returns its outputs, which are overwritten by the next run."""
        arrays = [x.data if isinstance(x, Tensor) else x for x in inputs]
        self._follow_states()
        try:
            self.executor.put(arrays)
        except MismatchError:
            if self.variants is None:
                raise
            return self.variants.run(arrays)
        self._execute()
        return self._outputs

    def run_many(self, stacks: Sequence[Any]) -> Tensor:
        """Run the plan once per row of stacked inputs; returns the outputs of one element, [rows], which are overwritten later.

        Raises ValueError for inputs that are not stacks of what the plan was made for, and :class:`~aicf.errors.UnsupportedError` for a
        plan with another output.
        """
        arrays = [x.data if isinstance(x, Tensor) else x for x in stacks]
        if len(self.plan.outputs) != 1 or self.plan.outputs[0].type.num_elems != 1:
            raise UnsupportedError(f"{self.plan.name}: only a plan with one output of one element is run many times at once")
        count = arrays[0].shape[0] if arrays and arrays[0].shape else 0
        for i, (array, wanted) in enumerate(itertools.zip_longest(arrays, self.plan.given_types)):
            stacked = None if wanted is None else wanted.reshape((count, *wanted.shape))
            if count == 0 or array is None or type_of(array) != stacked:
                found, expected = (None if array is None else type_of(array)), f"{count or 'N'} of {wanted}"
                raise ValueError(f"{self.plan.name}: x{i}: expected a stack of {expected}, one per run, got {found}")
            require_contiguous(array, f"{self.plan.name}: x{i}")
        self._follow_states()
        self._copies.follow()
        found = self.executor.scan(arrays, count)
        for tensor in self._changed:
            tensor.version.count += count
        for _ in range(count):
            self._copies.count_run()
        return Tensor.wrap(found, self._backend)

    def feed(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return a loader of the same batches for this program: on ``cuda`` they are copied from pinned memory while the device computes.

        ``for x, y in step.feed(loader): step(x, y)``; a batch is overwritten two batches later.
        """
        return self.executor.feed(loader)

    def run_leading(self, arrays: Sequence[Any], rows: int, row_outputs: Sequence[bool]) -> tuple[Tensor, ...]:
        """Run the plan on inputs that have fewer rows than it was made for; outputs that have rows have as many."""
        self._follow_states()
        self.executor.put_leading(arrays)
        self._execute()
        found = []
        for slot, tensor, has_rows in zip(self.plan.outputs, self._outputs, row_outputs, strict=True):
            cut = replace(slot, type=Type(slot.type.dtype, (rows, *slot.type.shape[1:]))) if has_rows else slot
            found.append(Tensor.wrap(self.executor.view(cut), self._backend, tensor.version) if has_rows else tensor)
        return tuple(found)

    def _execute(self) -> None:
        self._copies.follow()
        self.executor.run()
        for tensor in self._changed:
            tensor.version.count += 1
        self._copies.count_run()

    def verify_replay(self, runs: int) -> Report:
        """Run ``runs`` times step by step and again as :meth:`run` does, from the same states and inputs, and compare outputs and states.

        States are as before afterwards. Raises ValueError where nothing has been run yet: there are no inputs.
        """
        self._copies.follow()
        before = self.executor.read_bytes(STATE)
        stepwise = self._collect(runs, self.executor.run_steps)
        self.executor.write_bytes(STATE, before)
        replayed = self._collect(runs, self.executor.run)
        self.executor.write_bytes(STATE, before)
        differing = [i for i, (a, b) in enumerate(zip(stepwise, replayed, strict=True)) if a != b]
        return Report(runs, differing[0] if differing else None)

    def _collect(self, runs: int, run: Any) -> list[tuple[bytes, bytes]]:
        found = []
        for _ in range(runs):
            run()
            found.append((self.executor.read_bytes(OUTPUT).tobytes(), self.executor.read_bytes(STATE).tobytes()))
        return found

    def check(self, inputs: Sequence[Any]) -> list[StepError]:
        """Return each step's error against float64 on these inputs; states are as before afterwards."""
        self._copies.follow()
        before = self.executor.read_bytes(STATE)
        self.executor.put([x.data if isinstance(x, Tensor) else x for x in inputs])
        found = check_steps(self.executor)
        self.executor.write_bytes(STATE, before)
        return found

    def profile(self) -> list[StepTime]:
        """Return each step's time on the GPU, on the inputs of the last run; states are as before afterwards.

        Raises :class:`~aicf.errors.UnsupportedError` for a plan of another backend, and :class:`~device.UnavailableError` without a GPU.
        """
        self._copies.follow()
        before = self.executor.read_bytes(STATE)
        found = self.executor.profile()
        self.executor.write_bytes(STATE, before)
        return found

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return copies of all states in host memory, by ``role:owner``: weights, moments, the step, random counters."""
        return {f"{s.role}:{s.owner}": np.array(self.tensors[s.owner, s.role].numpy()) for s in self.plan.own_states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Overwrite all states; raises ValueError for one that is missing, unknown or of another type, and nothing is changed then."""
        mine = {f"{s.role}:{s.owner}": s for s in self.plan.own_states}
        missing, unknown = sorted(mine.keys() - state.keys()), sorted(state.keys() - mine.keys())
        if missing or unknown:
            raise ValueError(
                f"state does not fit {self.plan.name}: missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown) or 'none'}"
            )
        for name, held in mine.items():
            found, wanted = np.asarray(state[name]), held.slot.type
            if found.shape != wanted.shape or found.dtype != find_dtype(wanted.dtype):
                raise ValueError(f"{name}: expected {wanted}, got {found.dtype}{list(found.shape)}")
        for name, held in mine.items():
            tensor = self.tensors[held.owner, held.role]
            tensor.backend.copy_into(tensor.data, tensor.backend.from_host(np.asarray(state[name])))
            tensor.version.count += 1

    def save(self, folder: Path | str) -> None:
        """Write plan and states into a folder; each file is replaced as a whole. On ``cuda`` also what ``deploy`` makes C of."""
        arrays = self.state_dict()
        arrays |= self._copies.to_host(arrays)  # programs without Python make none
        Saved(type(self).__name__, self.plan, arrays, self.executor.describe_launches()).write(Path(folder))

    @classmethod
    def restore(cls, saved: Saved) -> Self:
        """Return a saved plan with its states: no pass runs, and nothing is selected."""
        made = cls(saved.plan, launches=saved.launches)
        made.executor.load_states({(s.owner, s.role): saved.states[f"{s.role}:{s.owner}"] for s in saved.plan.own_states})
        made._copies.settle()
        return made


class _Retired:
    """In the place of an executor whose memory was given back."""

    def __init__(self, plan: Plan, reason: str) -> None:
        self.plan, self._reason = plan, reason

    def __getattr__(self, name: str) -> NoReturn:
        raise StateError(f"{self.plan.name}: {self._reason}")
