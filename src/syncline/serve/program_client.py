"""`ProgramClient`: requests to the serve of another program of this user on this machine."""

from __future__ import annotations

from typing import Any

from syncline.core import control
from syncline.core.control import ActionFailed, Program, ProgramUnreachable
from syncline.serve import program_control
from syncline.serve.client import ServeClient
from syncline.serve.controller.messages import ApplicationTarget, Shutdown
from syncline.serve.wire.routes import Address

CHECK_S = 10.0
"""Seconds for an answer of the program."""


class ProgramClient(ServeClient):
    """Requests to the controller of another program, without an engine in this process."""

    def __init__(self, program: Program) -> None:
        """Raise ProgramUnreachable if the program does not answer."""
        self.program = program
        self._address, self._key = self._locate()
        self._node_id = self._address.node_id

    def _locate(self) -> tuple[Address, bytes]:
        reply = dict(self._ask("controller"))
        key = bytes.fromhex(reply.pop("key"))
        tcp = reply.pop("tcp", None)
        return Address(tcp=None if tcp is None else (tcp[0], tcp[1]), **reply), key

    def _ask(self, action: str, **arguments: str) -> dict[str, Any]:
        reply: dict[str, Any] = control.request(
            self.program, program_control.SUBJECT, action, arguments, timeout_s=CHECK_S
        )
        return reply

    def check_feasible(self, target: ApplicationTarget) -> None:
        """Raise RuntimeError if the program's machine can never run the first replicas."""
        try:
            self._ask("check", target=program_control.without_code(target))
        except ActionFailed as error:
            raise RuntimeError(str(error)) from None

    def shutdown(self) -> None:
        """End serve in the program; programs that only serve end then."""
        self.request(Shutdown())
        try:
            self._ask("shutdown")
        except ProgramUnreachable:  # it has ended meanwhile
            pass


def serving_programs() -> list[Program]:
    """Return the programs of this user on this machine that run serve, the latest first."""
    return [
        program
        for program in control.programs()
        if program_control.SUBJECT in (program.subjects or ())
    ]
