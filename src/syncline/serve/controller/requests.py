"""`Waiters`: requests of programs that are answered later, when a state is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from syncline.core.serialization import unpack_error
from syncline.core.tracebacks import raisable
from syncline.records import dataclass
from syncline.serve.controller import messages as m
from syncline.serve.controller.application_state import ApplicationStatus
from syncline.serve.controller.state import ControllerMachine


class Requester(Protocol):
    """The process that sent the request."""

    is_closed: bool
    """True if it no longer waits."""

    def reply(self, call_id: int, value: object) -> None:
        """Send the reply."""

    def fail(self, call_id: int, error: BaseException) -> None:
        """Send the error."""


Answer = Callable[[ControllerMachine], tuple[object] | None]
"""Returns the reply in a tuple, or None to wait further; raises the error of the request."""


@dataclass(frozen=True)
class _Waiter:
    requester: Requester
    call_id: int
    answer: Answer


class Waiters:
    """Requests without an answer yet."""

    def __init__(self, machine: ControllerMachine) -> None:
        self._machine = machine
        self._waiting: list[_Waiter] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, requester: Requester, call_id: int, answer: Answer) -> None:
        """Answer a request now or later."""
        waiter = _Waiter(requester, call_id, answer)
        if not self._try(waiter):
            self._waiting.append(waiter)

    def check(self) -> None:
        """Answer the requests whose state is reached."""
        if self._waiting:
            self._waiting = [each for each in self._waiting if not self._try(each)]

    def _try(self, waiter: _Waiter) -> bool:
        if waiter.requester.is_closed:
            return True
        try:
            answer = waiter.answer(self._machine)
        except Exception as error:
            waiter.requester.fail(waiter.call_id, error)
            return True
        if answer is None:
            return False
        waiter.requester.reply(waiter.call_id, answer[0])
        return True


def application_runs(request: m.WaitForApplication) -> Answer:
    """Return the answer to `WaitForApplication`."""
    name, version = request.name, request.version

    def answer(machine: ControllerMachine) -> tuple[object] | None:
        application = machine.applications.get(name)
        if application is None or application.is_deleting:
            raise RuntimeError(f"Deploying application {name!r} failed: it was deleted meanwhile.")
        if application.version > version:
            raise RuntimeError(
                f"Deploying application {name!r} failed: another version was deployed meanwhile."
            )
        status = application.status()
        if status is ApplicationStatus.DEPLOY_FAILED:
            raise RuntimeError(f"Deploying application {name!r} failed.\n{application.message()}")
        if status is ApplicationStatus.DEPLOYING:
            return None
        return (application.info(machine.table.version),)

    return answer


def applications_are_gone(request: m.DeleteApplications) -> Answer:
    """Return the answer to `DeleteApplications`."""

    def answer(machine: ControllerMachine) -> tuple[object] | None:
        known = [machine.applications.get(name) for name in request.names]
        return None if any(each is not None and each.is_deleting for each in known) else (None,)

    return answer


def proxies_listen(warning: str | None) -> Answer:
    """Return the answer to `StartProxies`."""

    def answer(machine: ControllerMachine) -> tuple[object] | None:
        fleet = machine.proxies
        if fleet.error is not None:
            raise raisable(unpack_error(fleet.error))
        return (warning,) if fleet.is_listening() or not fleet.is_wanted else None

    return answer


def everything_is_gone(machine: ControllerMachine) -> tuple[object] | None:
    """Answer `Shutdown`."""
    return (None,) if machine.is_empty else None
