"""The published routing table: its versions, and the subscribers that have acknowledged them. Pure.

A replica that is removed from the table may still get calls until every subscriber has acknowledged
the version without it; it is drained only after that. A restarted controller waits for the
subscribers of the earlier one, which use an old version until they reconnect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syncline.serve.wire.routes import ApplicationRoute, DeploymentId, DeploymentRoute, TableUpdate


class RoutingTable:
    """The state published to subscribers. `version` increases with each change."""

    def __init__(self, version: int = 0, expected: Iterable[str] = ()) -> None:
        """`expected` are the processes that subscribed to an earlier controller."""
        self.version = version
        self._deployments: dict[DeploymentId, DeploymentRoute] = {}
        self._applications: tuple[ApplicationRoute, ...] = ()
        self._acknowledged: dict[str, int] = {}
        self._processes: dict[str, str] = {}
        self._expected = set(expected)

    @property
    def deployments(self) -> Mapping[DeploymentId, DeploymentRoute]:
        """Published deployments."""
        return self._deployments

    @property
    def applications(self) -> tuple[ApplicationRoute, ...]:
        """Published applications."""
        return self._applications

    @property
    def subscribers(self) -> tuple[str, ...]:
        """Connected subscribers."""
        return tuple(self._acknowledged)

    @property
    def processes(self) -> tuple[str, ...]:
        """Processes of connected and of expected subscribers."""
        return tuple({**dict.fromkeys(self._processes.values()), **dict.fromkeys(self._expected)})

    def join(self, subscriber: str, process: str) -> TableUpdate:
        """Add a subscriber of a process, and return the complete table for it."""
        self._acknowledged[subscriber] = -1
        self._processes[subscriber] = process
        self._expected.discard(process)
        return TableUpdate(
            version=self.version,
            deployments=tuple(self._deployments.values()),
            applications=self._applications,
        )

    def leave(self, subscriber: str) -> None:
        """Remove a subscriber."""
        self._acknowledged.pop(subscriber, None)
        self._processes.pop(subscriber, None)

    def stop_expecting(self, process: str | None = None) -> None:
        """Remove an expected subscriber that has not reconnected, or all of them."""
        if process is None:
            self._expected.clear()
        else:
            self._expected.discard(process)

    def acknowledge(self, subscriber: str, version: int) -> None:
        """Record that a subscriber applied all updates up to `version`."""
        if subscriber in self._acknowledged:
            self._acknowledged[subscriber] = max(self._acknowledged[subscriber], version)

    def known_to_all(self) -> int:
        """Return the latest version that all subscribers have applied; -1 if one is expected."""
        if self._expected:
            return -1
        return min(self._acknowledged.values(), default=self.version)

    def change(
        self,
        routes: Iterable[tuple[DeploymentId, DeploymentRoute | None]],
        applications: tuple[ApplicationRoute, ...],
        departures: Mapping[str, str],
    ) -> TableUpdate | None:
        """Set deployments (None: remove) and applications; return the update, if any.

        `departures` has the replicas that left, and why.
        """
        changed: list[DeploymentRoute] = []
        removed: list[DeploymentId] = []
        for id, route in routes:
            before = self._deployments.get(id)
            if route is None:
                if before is not None:
                    del self._deployments[id]
                    removed.append(id)
            elif route != before:
                self._deployments[id] = route
                changed.append(route)
        other = applications != self._applications
        if not (changed or removed or other):
            return None
        self._applications = applications
        self.version += 1
        return TableUpdate(
            version=self.version,
            deployments=tuple(changed),
            removed=tuple(removed),
            applications=applications if other else None,
            departures=dict(departures),
        )
