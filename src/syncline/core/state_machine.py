"""Kernel of the state machines in data, train and tune.

- `StateEnum`: base of the enums of states.
- `Lifecycle`: the state of one subject, a table of allowed transitions, and a bounded history.
- `Dispatcher` and `on`: one typed handler per message class, complete when the class is defined.
- `Timers`: named deadlines on an injected clock, for the driver beside a machine.

A machine's `handle(event)` returns instructions and has no clock, I/O or thread inside; a driver
executes the instructions. Not covered: persistence, hierarchical states, thread safety.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, get_args

State = TypeVar("State", bound=Enum)
Message = TypeVar("Message")
Result = TypeVar("Result")
_Owner = TypeVar("_Owner")


class StateEnum(Enum):
    """Enum of states, whose hash needs no Python call: states are keys on hot paths."""

    __hash__ = object.__hash__


TransitionTable = Mapping[State, frozenset[State]]
"""Each state with the states that may follow it; a final state has none."""

_HANDLED_CLASS = "_handled_class"


class InvalidTransition(RuntimeError):
    """A transition that the table does not allow; the message includes the subject's history."""

    def __init__(self, subject: str, state: Enum, target: Enum, history: Sequence[str]) -> None:
        steps = "\n".join(f"  {line}" for line in history) or "  (no transition yet)"
        super().__init__(
            f"{subject} cannot go from {state.value} to {target.value}. "
            f"Transitions so far:\n{steps}"
        )
        self.state = state
        self.target = target
        self.history = tuple(history)


class Lifecycle(Generic[State]):
    """State of one subject, which moves along a transition table.

    Args:
        subject: Name for errors, such as "the controller" or "trial 3f2a_00001".
        table: Allowed transitions.
        initial: First state.
        history_length: Number of past transitions to keep for errors.
    """

    __slots__ = ("_history_length", "_subject", "_table", "_transitions", "is_final", "state")

    state: State
    """Current state; only `go` changes it."""
    is_final: bool
    """True if no transition leaves the current state."""

    def __init__(
        self,
        subject: str,
        table: TransitionTable[State],
        initial: State,
        *,
        history_length: int = 50,
    ) -> None:
        self._subject = subject
        self._table = table
        self.state = initial
        self.is_final = not table[initial]
        self._history_length = history_length
        self._transitions: list[tuple[State, State, str]] = []  # an empty deque has 600 bytes

    @property
    def history(self) -> tuple[str, ...]:
        """Recent transitions with their reasons, oldest first."""
        return tuple(
            f"{state.value} -> {target.value}: {reason}"
            for state, target, reason in self._transitions
        )

    def go(self, target: State, reason: str) -> None:
        """Enter `target`.

        Raises:
            InvalidTransition: The table has no transition from the current state to `target`.
        """
        if target not in self._table[self.state]:
            raise InvalidTransition(self._subject, self.state, target, self.history)
        self._transitions.append((self.state, target, reason))
        if len(self._transitions) > self._history_length:
            del self._transitions[0]
        self.state = target
        self.is_final = not self._table[target]


def on(
    message_class: type[Message],
) -> Callable[[Callable[[_Owner, Message], Result]], Callable[[_Owner, Message], Result]]:
    """Mark a method of a `Dispatcher` as the handler of one message class."""

    def mark(method: Callable[[_Owner, Message], Result]) -> Callable[[_Owner, Message], Result]:
        setattr(method, _HANDLED_CLASS, message_class)
        return method

    return mark


class Dispatcher(Generic[Message, Result]):
    """Base of a class that handles each class of a message union in one method.

    `class Machine(Dispatcher[Event, list[Instruction]], handles=Event)` needs a method marked
    `@on(Begin)` for each class `Begin` of the union `Event`. Type checkers compare the class with
    the method's parameter; a missing, repeated or foreign handler is an error when the class is
    defined.

    Raises:
        TypeError: The handlers do not match the union (when the class is defined).
    """

    _handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls, *, handles: object = None, **options: object) -> None:
        super().__init_subclass__(**options)
        if handles is None:
            return
        classes = get_args(handles) or (handles,)
        handlers: dict[type, Callable[[Any, Any], Any]] = {}
        for name in dir(cls):
            method = getattr(cls, name)
            handled = getattr(method, _HANDLED_CLASS, None)
            if handled is None:
                continue
            if handled in handlers:
                raise TypeError(f"{cls.__name__} has two handlers of {handled.__name__}: keep one.")
            handlers[handled] = method
        missing = [each.__name__ for each in classes if each not in handlers]
        foreign = [each.__name__ for each in handlers if each not in classes]
        if missing or foreign:
            raise TypeError(
                f"{cls.__name__} lacks handlers of {missing} and handles {foreign}, which are not "
                "in its union: mark one method with @on(...) for each class of the union."
            )
        cls._handlers = handlers

    def dispatch(self, message: Message) -> Result:
        """Call the handler of the message's class and return its result.

        Raises:
            TypeError: The message is not of a class that this object handles.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            raise TypeError(
                f"{type(self).__name__} has no handler of {type(message).__name__}: "
                f"it handles {sorted(each.__name__ for each in self._handlers)}."
            )
        result: Result = handler(self, message)
        return result


class Timers:
    """Named deadlines on an injected clock. Not thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deadlines: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._deadlines

    def start(self, name: str, seconds: float) -> None:
        """Start a timer, or restart the one of that name."""
        self._deadlines[name] = self._clock() + seconds

    def cancel(self, name: str) -> None:
        """Cancel a timer; do nothing if none of that name runs."""
        self._deadlines.pop(name, None)

    def wait_s(self) -> float | None:
        """Return the seconds until the earliest deadline, at least 0; None without a timer."""
        if not self._deadlines:
            return None
        return max(0.0, min(self._deadlines.values()) - self._clock())

    def pop_expired(self) -> str | None:
        """Remove the timer with the earliest deadline if it has passed, and return its name."""
        name = min(self._deadlines, key=self._deadlines.__getitem__, default=None)
        if name is None or self._deadlines[name] > self._clock():
            return None
        del self._deadlines[name]
        return name
