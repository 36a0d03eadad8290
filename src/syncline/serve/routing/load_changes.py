"""`LoadChanges`: the counts of calls that a process reports to the controller for autoscaling."""

from __future__ import annotations

from syncline.serve.controller.messages import DeploymentLoad
from syncline.serve.routing.link import Link
from syncline.serve.wire.routes import DeploymentId

REPORT_INTERVAL_S = 0.05
"""Minimum seconds between two reports of a process."""

_NONE = DeploymentLoad(queued=0, ongoing={})


class LoadChanges:
    """Compares the loads of a link with the last report."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reported: dict[DeploymentId, DeploymentLoad] = {}

    def forget(self) -> None:
        """Report everything again, for a new controller."""
        self._reported.clear()

    def collect(self) -> dict[DeploymentId, DeploymentLoad]:
        """Return the loads that have changed since the last call."""
        loads = {
            id: DeploymentLoad(queued, {replica: n for replica, n in ongoing.items() if n})
            for id, (queued, ongoing) in self._link.loads().items()
        }
        changed = {id: load for id, load in loads.items() if load != self._reported.get(id, _NONE)}
        changed |= dict.fromkeys(self._reported.keys() - loads.keys(), _NONE)
        self._reported = {id: load for id, load in loads.items() if load != _NONE}
        return changed
