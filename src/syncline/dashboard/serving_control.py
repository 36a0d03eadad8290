"""Live actions on a serve of this user on this machine. Independent of the web framework."""

from __future__ import annotations

import os

from syncline.core.control import ActionFailed, ProgramUnreachable
from syncline.runs import Run
from syncline.serve.controller.messages import GetRecordPath, GetStack, RestartReplica
from syncline.serve.program_client import ProgramClient, serving_programs

ANSWER_S = 20.0
NOT_REACHED = (
    "The program that serves is not reachable: it has ended, or runs on another machine or as "
    "another user."
)


class ServingActions:
    """Requests to the controller that writes a record. Calls block; they raise ProgramUnreachable
    without a program, and the error of the controller.
    """

    def __init__(self, run: Run) -> None:
        self._client = _client(run)

    def stack(self, replica_id: str) -> str:
        """Return the stacks of the threads of a replica."""
        reply = self._client.request(GetStack(replica_id=replica_id), ANSWER_S)
        return f"{reply}\n"

    def restart(self, replica_id: str) -> str:
        """Start a replacement of a replica, then drain it; KeyError if it has ended."""
        self._client.request(RestartReplica(replica_id=replica_id), ANSWER_S)
        return "The replica is drained when another one has started."


def _client(run: Run) -> ProgramClient:
    """Return a client of the controller whose process wrote the record."""
    for program in serving_programs():
        try:
            client = ProgramClient(program)
            path = client.request(GetRecordPath(), ANSWER_S)
        except (OSError, TimeoutError, ActionFailed):  # it ends just now
            continue
        if path and os.path.realpath(str(path)) == os.path.realpath(run.path):
            return client
    raise ProgramUnreachable(NOT_REACHED)
