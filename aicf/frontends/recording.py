"""Recording: calls of ops become nodes of a graph. Anything a replay could not repeat raises, with the user's source line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from numpy.typing import NDArray

from aicf.backends import RecordingBackend
from aicf.errors import RecordError
from aicf.ir.graph import BUFFER, PARAMETER, RANDOM, Graph, Rewriter, Value
from aicf.modes import find_source, recording
from aicf.nn import Module, Parameter
from aicf.opset import Attrs, Type
from aicf.random import Generator
from aicf.tensor import Tensor


@dataclass(frozen=True)
class Recording:
    """A graph, and the tensors that its states are, by (owner, role)."""

    graph: Graph
    tensors: Mapping[tuple[str, str], Tensor]


class Recorder(RecordingBackend):
    """A backend whose arrays are values of a graph."""

    name = "record"

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.tensors: dict[tuple[str, str], Tensor] = {}
        self._states: dict[int, Value] = {}  # by the array: a tensor detached from a parameter is the same state
        self._paths: dict[int, str] = {}
        self._scopes: list[str] = []
        self._generators: dict[int, tuple[Value, int]] = {}

    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Append a node."""
        self.rewriter.source = find_source()
        self.rewriter.owner = self._scopes[-1] if self._scopes else ""
        return self.rewriter.call(op, inputs, attrs)

    def type_of(self, array: Any) -> Type:
        """Return a value's type."""
        found: Type = array.type
        return found

    def from_host(self, values: NDArray[Any]) -> NoReturn:
        """Refuse: values of the host are constants that a replay would not see change."""
        raise RecordError(f"{find_source()}: host values cannot become part of a recorded program; pass them as an input")

    def to_host(self, array: Any) -> NoReturn:
        """Refuse: nothing has been computed."""
        raise RecordError(f"{find_source()}: a recorded tensor has no values yet")

    def copy_into(self, target: Any, source: Any) -> NoReturn:
        """Refuse: values are immutable."""
        raise RecordError(f"{find_source()}: a recorded tensor cannot be changed in place; make a new one")

    # ---- what is recorded over

    def add_model(self, model: Module) -> None:
        """Make a model's parameters and buffers states of the graph."""
        for path, module in model.modules():
            self._paths[id(module)] = path
        for path, tensor in model.named_tensors():
            self.add_state(path, PARAMETER if isinstance(tensor, Parameter) else BUFFER, tensor)

    def add_state(self, owner: str, role: str, tensor: Tensor) -> Tensor:
        """Make a tensor a state of the graph; returns what stands for it in the recording."""
        value = self._states[id(tensor.data)] = self.rewriter.add_state(owner, role, tensor.type)
        self.tensors[owner, role] = tensor
        return Tensor.wrap(value, self)

    def wrap(self, value: Value) -> Tensor:
        """Return a value as a tensor of the recording."""
        return Tensor.wrap(value, self)

    def lift(self, tensor: Tensor) -> Tensor:
        """Return what stands for a tensor; raises :class:`RecordError` for one that is neither an input nor a state."""
        if tensor.backend is self:
            return tensor
        value = self._states.get(id(tensor.data))
        if value is not None:
            return Tensor.wrap(value, self)
        kind = "a parameter that is not the model's" if isinstance(tensor, Parameter) else "a tensor from outside"
        raise RecordError(
            f"{find_source()}: {kind} ({tensor.type}) is used while a program is recorded, and a replay would not see it change; "
            "pass it as an input, or make it an attribute of the model: nn.Buffer(values)"
        )

    def draw(self, generator: Generator) -> tuple[Tensor, int]:
        """Return the generator's counter as a state, and which draw of a run this is."""
        if id(generator) not in self._generators:
            state = self.add_state(f"random.{len(self._generators)}", RANDOM, generator.counter)
            self._generators[id(generator)] = (state.data, 0)
        value, count = self._generators[id(generator)]
        self._generators[id(generator)] = (value, count + 1)
        return self.wrap(value), count

    def advance_generators(self) -> list[tuple[Value, Value]]:
        """Append what moves each generator's offset on behind a run's draws; returns the updates."""
        return [(value, self.rewriter.one("Advance", value, by=count)) for value, count in self._generators.values()]

    @contextmanager
    def scope(self, module: Module) -> Iterator[None]:
        """Make the block's nodes a module's."""
        self._scopes.append(self._paths.get(id(module), ""))
        try:
            yield
        finally:
            self._scopes.pop()


def record(function: Callable[..., Any], model: Module, types: Mapping[str, Type], name: str) -> Recording:
    """Record ``function(model, *inputs)``, which returns a tensor or several; generators that it draws from move on with each run.

    Raises :class:`RecordError`, with the user's source line, for what a replay would not do again.
    """
    rewriter = Rewriter(Graph(name, (), (), (), ()))
    inputs = tuple((key, Value(rewriter.make_id(), t)) for key, t in types.items())
    rewriter.graph = Graph(name, inputs, (), (), ())
    recorder = Recorder(rewriter)
    recorder.add_model(model)
    with recording(recorder):
        made = function(model, *(recorder.wrap(v) for _, v in inputs))
        outputs = made if isinstance(made, tuple) else (made,)
        for output in outputs:
            if not isinstance(output, Tensor):
                raise RecordError(f"{name}: returned {type(output).__name__}; a recorded function returns tensors")
        values = [recorder.lift(output).data for output in outputs]
        updates = recorder.advance_generators()
    return Recording(rewriter.finish(values, updates), recorder.tensors)
