"""`Step`: data shared by the parts of the state machine while they handle one event. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

from syncline.serve.controller.autoscaler import Policy
from syncline.serve.controller.deadlines import Deadlines
from syncline.serve.controller.events import Instruction, RecordEvent
from syncline.serve.controller.messages import DeploymentTarget
from syncline.serve.wire.routes import DeploymentId

DeadlineKind = Literal[
    "wait",
    "slow",
    "health",
    "health_limit",
    "acknowledge",
    "kill",
    "recover",
    "reconnect",
    "backoff",
    "scale",
    "scale_app",
    "proxy_backoff",
    "proxy_kill",
    "actor_backoff",
    "actor_slow",
]
DeadlineKey = tuple[DeadlineKind, str | DeploymentId]
"""Kind, and the replica, deployment, application, proxy or deployment actor that it is about."""


BACKOFF_S = 0.5
BACKOFF_MAX_S = 30.0


def backoff_s(failures: int) -> float:
    """Return the seconds to wait after `failures` failures in a row; they double each time."""
    return min(BACKOFF_S * 2.0 ** (failures - 1), BACKOFF_MAX_S)


class Step:
    """Time, deadlines and instructions.

    Args:
        new_suffix: Returns a new unique suffix of ids.
        load_policy: Returns a policy function from its pickled form.
        wall_clock: Returns seconds since the epoch, for display.
    """

    def __init__(
        self,
        new_suffix: Callable[[], str],
        load_policy: Callable[[bytes], Policy],
        wall_clock: Callable[[], float],
    ) -> None:
        self.now = 0.0
        """Time of the event."""
        self.deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.new_suffix = new_suffix
        self.load_policy = load_policy
        self.wall_clock = wall_clock
        self.table_version = 0
        """Current version of the routing table."""
        self.departures: dict[str, str] = {}
        """Replicas that stopped serving since the table was published, and why."""
        self.must_save = False
        """True if the snapshot no longer describes the state."""
        self._instructions: list[Instruction] = []

    def emit(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self._instructions.append(instruction)

    def after(self, kind: DeadlineKind, subject: str | DeploymentId, seconds: float) -> None:
        """Set a deadline that many seconds after the event."""
        self.deadlines.set((kind, subject), self.now + seconds)

    def record(
        self,
        kind: str,
        message: str,
        *,
        deployment: DeploymentId | None = None,
        app: str | None = None,
        replica_id: str | None = None,
        level: Literal["debug", "info", "warning", "error"] = "info",
        **data: object,
    ) -> None:
        """Add a `RecordEvent`."""
        self.emit(
            RecordEvent(
                kind=kind,
                message=message,
                deployment=deployment,
                app=app if deployment is None else deployment.app,
                replica_id=replica_id,
                level=level,
                data=data,
            )
        )

    def policy_of(self, target: DeploymentTarget) -> Policy | None:
        """Return the custom autoscaling policy of a deployment; None for the default one.

        Raises ImportError or AttributeError for a wrong import path.
        """
        config = target.config.autoscaling_config
        if config is None:
            return None
        if target.autoscaling_policy is not None:
            function = self.load_policy(target.autoscaling_policy)
        elif config.policy.is_default:
            return None
        else:
            function = config.policy.load()
        return functools.partial(function, **config.policy.policy_kwargs)

    def take(self) -> list[Instruction]:
        """Return the instructions and forget them."""
        taken, self._instructions = self._instructions, []
        return taken
