"""The subject "serve" of a program's control socket: commands find the controller through it.

The socket belongs to the user (mode 0700), so the key of the session may be sent over it. Requests
go to the controller itself; see `program_client`. On a cluster, commands find the controller by its
name and need no program.
"""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from syncline.core import control
from syncline.core.control_server import Arguments
from syncline.records import dataclass
from syncline.serve.controller.messages import ApplicationTarget
from syncline.serve.wire.routes import Address

SUBJECT = "serve"


@dataclass(frozen=True, kw_only=True)
class ProgramActions:
    """Functions of the program that other processes may call."""

    locate: Callable[[], tuple[Address, bytes]]
    """Return the controller's address and the key of the session."""
    check_feasible: Callable[[ApplicationTarget], None]
    """Raise RuntimeError if the resources of an application do not exist."""
    shut_down: Callable[[], None]
    """End serve in the program."""


class _Offer:
    """Registration of this process; there is at most one."""

    withdraw: Callable[[], None] | None = None
    ended = threading.Event()


def offer(actions: ProgramActions, directory: Path) -> None:
    """Answer requests about serve, on the control socket in the engine's session directory."""
    withdraw()
    _Offer.ended.clear()
    _Offer.withdraw = control.serve(SUBJECT, _Handler(actions), directory=directory)


def withdraw() -> None:
    """Answer no more requests; does nothing if none are answered."""
    function, _Offer.withdraw = _Offer.withdraw, None
    if function is not None:
        function()
        _Offer.ended.set()


def wait_for_end(timeout_s: float | None = None) -> bool:
    """Wait until serve ends in this process; return False after `timeout_s`."""
    return _Offer.ended.wait(timeout_s)


class _Handler:
    """Answers requests on threads of the control socket."""

    def __init__(self, actions: ProgramActions) -> None:
        self._program = actions
        self._actions: dict[str, Callable[[Arguments], object]] = {
            "controller": self._controller,
            "check": self._check,
            "shutdown": self._shut_down,
        }

    def __call__(self, action: str, arguments: Arguments) -> object:
        if action not in self._actions:
            raise ValueError(f"unknown action {action!r}; known: {', '.join(self._actions)}")
        return self._actions[action](arguments)

    def _controller(self, _arguments: Arguments) -> object:
        address, key = self._program.locate()
        return {**asdict(address), "key": key.hex()}

    def _check(self, arguments: Arguments) -> object:
        self._program.check_feasible(pickle.loads(base64.b64decode(arguments["target"])))
        return None

    def _shut_down(self, _arguments: Arguments) -> object:
        # Not on this thread: the end closes the connection that it answers.
        threading.Thread(target=self._program.shut_down, name="serve-shutdown").start()
        return None


def without_code(target: ApplicationTarget) -> str:
    """Return the argument of "check": an application without the pickles of user code."""
    deployments = tuple(
        replace(each, func_or_class=b"", init_args=b"", request_router=None)
        for each in target.deployments
    )
    small = replace(target, deployments=deployments, args={})
    return base64.b64encode(pickle.dumps(small)).decode()
