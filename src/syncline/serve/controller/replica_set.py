"""The replicas of one deployment, each from its start to the end of its process. Pure.

    STARTING -> RUNNING <-> UPDATING     RECOVERING -> RUNNING (the controller restarted)
        |          |            |             |
        +----------+------------+-------------+--> DRAINING -> STOPPED

A replica drains in steps: the table is published without it; all subscribers acknowledge; it gets
the request to finish; its process ends. Failed starts and crashes are counted by version and delay
the next start.

Replicas of a gang serve once all of them are ready. If one of them fails, the others are stopped;
when they drain, they exit together, after the last call of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncline.serve.controller import rollout
from syncline.serve.controller.events import (
    DrainReplica,
    InspectStart,
    KillReplica,
    SendToReplica,
    StartInspected,
    StartReplica,
)
from syncline.serve.controller.messages import (
    CheckHealth,
    Exit,
    HealthReport,
    Reconfigure,
    Reconfigured,
    ReplicaReady,
)
from syncline.serve.controller.replica_state import Gang, Replica, ReplicaState, Version
from syncline.serve.controller.step import DeadlineKind, Step, backoff_s
from syncline.serve.wire.routes import DeploymentId, ReplicaRoute

WAIT_S = 1.0
"""Seconds after which a start without a process is assumed to wait for resources."""
NEXT_WAIT_S = 0.2
"""The same while the nodes have no room for more replicas than wanted."""
INSPECT_WAIT_S = 10.0
"""Seconds between checks of the resources that a start waits for."""
SLOW_START_S = 30.0
"""Seconds after which the constructor's stack is shown."""
INSPECT_SLOW_S = 60.0
ACKNOWLEDGE_S = 2.0
"""Seconds to wait for subscribers; replicas refuse calls that come later, unbegun."""
KILL_MARGIN_S = 1.0
"""Seconds after the graceful shutdown timeout at which a replica is killed."""
EXIT_S = 5.0
"""Seconds for a process to exit after it reported a failed start."""
RECOVER_S = 30.0
"""Seconds for a replica to connect again after a restart of the controller."""
HEALTH_FAILURES = 3
"""Consecutive failed health checks after which a replica is replaced."""
SHORT_LIFE_S = 10.0
"""Seconds after its start within which the death of a replica counts as a crash."""
FREE_CRASHES = 2
"""Consecutive crashes before restarts are delayed."""
GANG = "SERVE_GANG::"
"""Prefix of the names of placement groups of gangs."""

_S = ReplicaState
_OF_REPLICAS: tuple[DeadlineKind, ...] = (
    "wait",
    "slow",
    "health",
    "health_limit",
    "acknowledge",
    "kill",
    "recover",
)


class ReplicaSet:
    """Replicas of one deployment."""

    def __init__(self, id: DeploymentId, step: Step, route_prefix: str | None) -> None:
        self.id = id
        self.replicas: dict[str, Replica] = {}
        self.route_prefix = route_prefix
        self.is_asgi = False
        self.docs_path: str | None = None
        self.patterns: tuple[str, ...] = ()
        self.room = rollout.Room()
        self.trouble = ""
        """Reason why replicas are missing although the rollout was complete."""
        self.actor_failed = False
        """True if the last start that failed was one of a deployment actor."""
        self._step = step

    @property
    def wanted(self) -> int:
        """Number of replicas to run."""
        raise NotImplementedError

    def serving(self) -> list[Replica]:
        """Return the replicas that take calls."""
        return [each for each in self.replicas.values() if each.is_serving]

    def retire(self, replicas: Iterable[Replica], reason: str) -> None:
        """Replace replicas by new ones, which start first."""
        for replica in [member for each in replicas for member in each.unit]:
            if not replica.retired and replica.state not in (_S.DRAINING, _S.STOPPED):
                replica.retired = reason
                self._step.record(
                    "replica_retired",
                    f"Replica {replica.id} is replaced: {reason}.",
                    deployment=self.id,
                    replica_id=replica.id,
                )

    # -- starting

    def start(self, version: Version, count: int) -> None:
        """Start replicas, in whole gangs."""
        config = version.target.config
        ranks = rollout.free_ranks(self.replicas.values(), version.number, count)
        ids = [f"{self.id}#{self._step.new_suffix()}" for _ in ranks]
        if config.gang_scheduling_config is None:
            for id, rank in zip(ids, ranks, strict=True):
                self._start(version, id, rank, None)
            return
        for first in range(0, count, config.gang_size):
            suffix = self._step.new_suffix()
            members = slice(first, first + config.gang_size)
            has_group = bool(rollout.bundles_of(config))
            gang = Gang(suffix, ids[members], f"{GANG}{self.id}#{suffix}" if has_group else "")
            for id, rank in zip(ids[members], ranks[members], strict=True):
                self._start(version, id, rank, gang)

    def _start(self, version: Version, id: str, rank: int, gang: Gang | None) -> None:
        step = self._step
        replica = Replica(
            id=id,
            version=version,
            rank=rank,
            world_size=self.wanted,
            created_at=step.now,
            gang=gang,
        )
        self.add(replica)
        step.must_save = True
        step.emit(
            StartReplica(
                replica_id=replica.id,
                deployment=self.id,
                target=version.target,
                route_prefix=self.route_prefix,
                rank=replica.rank,
                world_size=replica.world_size,
                config_number=version.config_number,
                gang=None if gang is None else gang.context(id),
            )
        )
        step.after("wait", replica.id, WAIT_S if self.room.is_enough else NEXT_WAIT_S)

    def add(self, replica: Replica) -> None:
        """Add a replica, also to its gang."""
        self.replicas[replica.id] = replica
        if replica.gang is not None:
            replica.gang.members.append(replica)
            replica.gang.was_placed |= replica.is_placed

    def on_placed(self, replica: Replica) -> None:
        """The process exists."""
        is_first = replica.gang is None or not replica.gang.was_placed
        replica.is_placed = True
        if replica.gang is not None:
            replica.gang.was_placed = True
        replica.note = ""
        self._step.deadlines.cancel(("wait", replica.id))
        if replica.state is _S.STARTING:
            self._step.after("slow", replica.id, SLOW_START_S)
            if is_first:
                self.room.use(replica.version.target.config)

    def on_refused(self, replica: Replica, reason: str) -> None:
        """The replica can never start: do not try again."""
        if replica.state is _S.STARTING:
            self._count_failure(replica.version, replica.id, reason, is_final=True)
        self._forget(replica, "refused")
        self._end_siblings(replica, "can never start")

    def on_inspected(self, replica: Replica, event: StartInspected) -> None:
        """Record the reason for a slow start."""
        if replica.state is not _S.STARTING:
            return
        seconds = round(self._step.now - replica.created_at)
        if replica.is_placed:
            kind = "slow_constructor"
            note = (
                f"the constructor of {replica.id} has not returned for {seconds} s:\n{event.text}"
            )
        elif event.lacks_resources:
            kind = "replica_waits"
            who = f"replica {replica.id}"
            if replica.gang is not None:
                who = f"the gang of {len(replica.unit)} replicas of {who}"
            note = f"{who} has waited for resources for {seconds} s: {event.text}"
            self._note_wait()
        else:  # the process itself takes long to start, as those of clusters do
            if seconds < SLOW_START_S:
                self._step.after("wait", replica.id, WAIT_S)
                return
            kind = "slow_process"
            note = f"the process of {replica.id} has not started for {seconds} s: {event.text}"
        if replica.note.partition("\n")[0] != note.partition("\n")[0]:
            self._step.record(
                kind,
                f"Deployment {self.id}: {note}",
                deployment=self.id,
                replica_id=replica.id,
                level="warning",
            )
        replica.note = note

    def on_ready(self, replica: Replica, event: ReplicaReady) -> None:
        """The replica takes calls."""
        step = self._step
        if replica.state is _S.DRAINING:
            if replica.drains:  # it connected to a restarted controller
                self._tell_to_drain(replica)
            return
        is_new = replica.state is _S.STARTING
        replica.route = ReplicaRoute(
            replica_id=replica.id, address=event.address, ledger_path=event.ledger_path
        )
        replica.pid, replica.node_id = event.pid, event.node_id
        replica.constructor_s = event.constructor_s
        replica.is_placed, replica.note = True, ""
        self._cancel_deadlines(replica)
        self.is_asgi, self.docs_path = event.is_asgi, event.docs_path
        self.patterns = event.patterns
        if replica.state not in (_S.RUNNING, _S.UPDATING):
            replica.lifecycle.go(_S.RUNNING, "it is ready")
        step.after("health", replica.id, replica.version.target.config.health_check_period_s)
        step.must_save = True
        if replica.is_serving:
            replica.version.failures = 0
            replica.version.error = ""
        if is_new:
            replica.ready_at = step.now
            step.record(
                "replica_started",
                f"Replica {replica.id} started in {step.now - replica.created_at:.3f} s.",
                deployment=self.id,
                replica_id=replica.id,
                level="debug",
                pid=event.pid,
                node_id=event.node_id,
                constructor_s=event.constructor_s,
                seconds=step.now - replica.created_at,
            )

    def on_start_failed(self, replica: Replica, traceback: str) -> None:
        """The constructor, `reconfigure` or the first health check raised."""
        if replica.state is _S.DRAINING:
            return
        self._count_failure(replica.version, replica.id, traceback)
        self._stop_starting(replica, "its start failed")
        self._step.after("kill", replica.id, EXIT_S)
        self._end_siblings(replica, "did not start")

    def _count_failure(
        self, version: Version, replica_id: str | None, reason: str, *, is_final: bool = False
    ) -> None:
        """Count a failed start of a replica, or of a deployment actor if `replica_id` is None."""
        step = self._step
        self.actor_failed = replica_id is None
        version.failures += 1
        version.error = reason
        starters = 1 if replica_id is None else max(1, self.wanted)
        limit = min(3 * starters, version.target.config.max_constructor_retry_count)
        if version.was_complete:
            self.trouble = reason
        version.start_after = step.now + backoff_s(version.failures)
        step.record(
            "start_failed",
            f"A replica of {self.id} did not start: {reason}",
            deployment=self.id,
            replica_id=replica_id,
            level="warning" if version.failures < limit else "error",
            tries=version.failures,
        )
        if version.was_complete and not is_final:
            return
        if (is_final or version.failures >= limit) and not version.has_failed:
            self._fail_rollout(version)

    def _fail_rollout(self, version: Version) -> None:
        version.has_failed = True
        kept = sum(each.is_serving for each in self.replicas.values())
        self._step.must_save = True
        self._step.record(
            "rollout_failed",
            f"The rollout of {self.id} stopped after {version.failures} failed start(s)"
            + (f"; {kept} replica(s) serve on." if kept else "."),
            deployment=self.id,
            level="error",
        )

    # -- options of running replicas

    def number_ranks(self, version: Version) -> None:
        """Give the serving replicas the ranks 0 to n - 1, and tell those whose rank changed."""
        serving = self.serving()
        ranks = rollout.contiguous_ranks(serving)
        for replica in serving:
            rank = ranks[replica.id]
            if (replica.rank, replica.world_size) != (rank, len(serving)):
                replica.rank, replica.world_size = rank, len(serving)
                self._send_options(replica, version, user_config_changed=False)

    def reconfigure(self, replica: Replica, version: Version) -> None:
        """Send all options; user code runs if the user configuration differs."""
        changed = replica.version is not version
        if changed and replica.state is _S.RUNNING:
            replica.lifecycle.go(_S.UPDATING, "another user_config")
            replica.update = version
        self._send_options(replica, version, user_config_changed=changed)

    def _send_options(
        self, replica: Replica, version: Version, *, user_config_changed: bool
    ) -> None:
        config = version.target.config
        message = Reconfigure(
            version=version.config_number,
            user_config=config.user_config,
            user_config_changed=user_config_changed,
            max_ongoing_requests=config.max_ongoing_requests,
            graceful_shutdown_timeout_s=config.graceful_shutdown_timeout_s,
            health_check_timeout_s=config.health_check_timeout_s,
            rank=replica.rank,
            world_size=replica.world_size,
            logging_config=config.logging_config,
        )
        self._step.emit(SendToReplica(replica_id=replica.id, message=message))

    def on_reconfigured(self, replica: Replica, event: Reconfigured) -> None:
        """The replica has applied other options, or could not."""
        update = replica.update
        if event.traceback is not None:
            replica.note = f"`reconfigure` failed: {event.traceback}"
        if replica.state is not _S.UPDATING or update is None:
            return
        if event.version != update.config_number:
            return
        replica.update = None
        replica.lifecycle.go(_S.RUNNING, "`reconfigure` ended")
        self._step.must_save = True
        if event.traceback is None:
            replica.version = update
            replica.note = ""
            return
        update.error = event.traceback
        update.failures += 1
        if not update.has_failed:
            self._fail_rollout(update)
        self.retire([replica], "its `reconfigure` failed")

    # -- health

    def on_health(self, replica: Replica, event: HealthReport) -> None:
        """A health check was answered, or the replica noticed a change."""
        replica.note = "" if event.healthy else event.message
        if ("health_limit", replica.id) not in self._step.deadlines:
            return  # not an answer
        self._step.deadlines.cancel(("health_limit", replica.id))
        self._count_health(replica, event.healthy, event.message, is_hung=False)

    def _count_health(
        self, replica: Replica, healthy: bool, message: str, *, is_hung: bool
    ) -> None:
        if not replica.is_ready:
            return
        replica.health_failures = 0 if healthy else replica.health_failures + 1
        if replica.health_failures < HEALTH_FAILURES:
            period_s = replica.version.target.config.health_check_period_s
            self._step.after("health", replica.id, 0 if is_hung else period_s)
            return
        self.trouble = f"replica {replica.id} failed {HEALTH_FAILURES} health checks: {message}"
        self._step.record(
            "unhealthy",
            f"Replica {replica.id} is replaced: {HEALTH_FAILURES} health checks in a row failed, "
            f"the last one with: {message}",
            deployment=self.id,
            replica_id=replica.id,
            level="warning",
        )
        if is_hung or not replica.is_serving:
            what = "did not answer health checks" if is_hung else "failed its health checks"
            self.kill(replica, f"it {what}")
            self._end_siblings(replica, what)
            return
        for each in replica.unit:
            ill = "its health checks" if each is replica else f"health checks of {replica.id}"
            self.drain(each, f"{ill} failed")

    def _check_health(self, replica: Replica) -> None:
        if not replica.is_ready:
            return
        self._step.emit(SendToReplica(replica_id=replica.id, message=CheckHealth()))
        timeout_s = replica.version.target.config.health_check_timeout_s
        self._step.after("health_limit", replica.id, timeout_s)

    # -- stopping

    def drain(self, replica: Replica, reason: str) -> None:
        """Take a serving replica out of the table, and let it finish its calls."""
        step = self._step
        replica.ending = reason
        step.departures[replica.id] = f"it was being stopped: {reason}"
        replica.lifecycle.go(_S.DRAINING, reason)
        self._cancel_deadlines(replica)
        replica.removed_at = step.table_version + 1  # the update that this step publishes
        step.after("acknowledge", replica.id, ACKNOWLEDGE_S)
        step.must_save = True

    def on_acknowledged(self, version: int) -> None:
        """All subscribers know the table up to this version."""
        for replica in self.replicas.values():
            if replica.removed_at is not None and replica.removed_at <= version:
                self._tell_to_drain(replica)

    def _tell_to_drain(self, replica: Replica) -> None:
        step = self._step
        replica.removed_at = None
        replica.drains = True
        timeout_s = replica.version.target.config.graceful_shutdown_timeout_s
        step.deadlines.cancel(("acknowledge", replica.id))
        step.emit(DrainReplica(replica_id=replica.id, timeout_s=timeout_s))
        step.after("kill", replica.id, timeout_s + KILL_MARGIN_S)

    def on_drained(self, replica: Replica) -> None:
        """The last call of a draining replica ended."""
        replica.has_drained = True
        self._let_exit(replica)

    def _let_exit(self, replica: Replica) -> None:
        """Let the replicas of a gang exit once none of them has calls."""
        if replica.gang is not None and all(each.has_drained for each in replica.unit):
            for each in replica.unit:
                self._step.emit(SendToReplica(replica_id=each.id, message=Exit()))

    def _end_siblings(self, replica: Replica, what: str) -> None:
        """Kill the other replicas of a gang, which cannot work without this one."""
        for each in replica.siblings:
            self.kill(each, f"{replica.id} of its gang {what}")

    def cancel(self, replica: Replica, reason: str) -> None:
        """End a replica that starts.

        If the controller restarted from an old snapshot, callers may know the replica already, so
        it drains.
        """
        if replica.is_restored:
            self._stop_starting(replica, reason)
            replica.removed_at = self._step.table_version  # it is in no table of this controller
            self._step.after("acknowledge", replica.id, ACKNOWLEDGE_S)
        else:
            self.kill(replica, reason)

    def kill(self, replica: Replica, reason: str) -> None:
        """Kill the process of a replica."""
        if replica.state is not _S.DRAINING:
            self._stop_starting(replica, reason)
        self._step.emit(KillReplica(replica_id=replica.id, reason=reason))

    def _stop_starting(self, replica: Replica, reason: str) -> None:
        """Enter DRAINING without the steps of a drain: the process is about to end."""
        if replica.is_ready:
            self._step.departures[replica.id] = f"it was killed: {reason}"
        replica.ending = reason
        replica.lifecycle.go(_S.DRAINING, reason)
        self._cancel_deadlines(replica)
        self._step.must_save = True

    def on_ended(self, replica: Replica, cause: str) -> None:
        """The process is gone."""
        step = self._step
        if replica.is_starting:
            reason = cause or "its process ended before it was ready"
            self._count_failure(replica.version, replica.id, reason)
        elif replica.is_serving:
            self._count_crash(replica, cause or "its process ended")
        if replica.is_ready:
            step.departures[replica.id] = cause or "its process ended"
        step.record(
            "replica_ended",
            f"Replica {replica.id} ended: {replica.ending or cause}",
            deployment=self.id,
            replica_id=replica.id,
            level="info" if replica.ending else "warning",
            cause=cause,
        )
        self._forget(replica, replica.ending or cause or "its process ended")
        gang = replica.gang
        if replica.is_placed if gang is None else gang.was_placed and not gang.members:
            self.room.free(replica.version.target.config)
        self._end_siblings(replica, "died")
        self._let_exit(replica)

    def _count_crash(self, replica: Replica, cause: str) -> None:
        version, now = replica.version, self._step.now
        lived_s = now - (replica.ready_at if replica.ready_at is not None else replica.created_at)
        version.crashes = version.crashes + 1 if lived_s < SHORT_LIFE_S else 0
        self.trouble = f"replica {replica.id} died: {cause}"
        if version.crashes > FREE_CRASHES:
            version.start_after = now + backoff_s(version.crashes - FREE_CRASHES)

    def _forget(self, replica: Replica, reason: str) -> None:
        if replica.state is not _S.STOPPED:
            replica.lifecycle.go(_S.STOPPED, reason)
        self._cancel_deadlines(replica)
        del self.replicas[replica.id]
        if replica.gang is not None:
            replica.gang.members.remove(replica)
        self._step.must_save = True

    def _cancel_deadlines(self, replica: Replica) -> None:
        for kind in _OF_REPLICAS:
            self._step.deadlines.cancel((kind, replica.id))

    # -- deadlines

    def on_deadline(self, kind: DeadlineKind, replica: Replica) -> None:
        """A deadline of a replica has passed."""
        if kind == "wait":
            self._on_wait(replica)
        elif kind == "slow":
            self._step.emit(InspectStart(replica_id=replica.id, kind="runs"))
            self._step.after("slow", replica.id, INSPECT_SLOW_S)
        elif kind == "health":
            self._check_health(replica)
        elif kind == "health_limit":
            timeout_s = replica.version.target.config.health_check_timeout_s
            message = f"it did not answer within {timeout_s:g} s"
            replica.note = message
            self._count_health(replica, False, message, is_hung=True)
        elif kind == "acknowledge":
            self._tell_to_drain(replica)
        elif kind == "kill":
            self.kill(replica, "it did not exit in time")
            self._step.after("kill", replica.id, EXIT_S)
        elif kind == "recover" and replica.is_ready:
            self.kill(replica, "it did not connect to the restarted controller")
            self._end_siblings(replica, "did not connect to the restarted controller")

    def _on_wait(self, replica: Replica) -> None:
        if replica.state is not _S.STARTING or replica.is_placed:
            return
        if not replica.waits or replica is replica.unit[0]:  # one of a gang waits for all
            self._step.emit(InspectStart(replica_id=replica.id, kind="waits"))
        self._step.after("wait", replica.id, INSPECT_WAIT_S)

    def _note_wait(self) -> None:
        """A start waits for resources."""
