"""Views of the controller's state for programs: status and details."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from syncline.serve import schema
from syncline.serve.controller import deployment_status
from syncline.serve.controller.application_state import ApplicationState
from syncline.serve.controller.deployment_state import DeploymentState
from syncline.serve.controller.messages import DeploymentDetails, ReplicaDetails, ServeDetails
from syncline.serve.controller.replica_state import Replica
from syncline.serve.controller.state import ControllerMachine


def serve_status(machine: ControllerMachine) -> schema.ServeStatus:
    """Return the status of all applications and proxies."""
    return schema.ServeStatus(
        proxies={
            each.node_id: schema.ProxyStatus(each.state)
            for each in machine.proxies.proxies.values()
        },
        applications={
            name: _application(application) for name, application in machine.applications.items()
        },
    )


def _application(application: ApplicationState) -> schema.ApplicationStatusOverview:
    return schema.ApplicationStatusOverview(
        status=schema.ApplicationStatus(application.status().value),
        message=application.message(),
        last_deployed_time_s=application.deployed_s,
        deployments={name: _deployment(each) for name, each in application.deployments.items()},
    )


def _deployment(deployment: DeploymentState) -> schema.DeploymentStatusOverview:
    states = Counter(_state(each) for each in deployment.replicas.values())
    return schema.DeploymentStatusOverview(
        status=schema.DeploymentStatus(deployment_status.status(deployment).value),
        status_trigger=schema.DeploymentStatusTrigger(deployment_status.trigger(deployment)),
        replica_states=dict(states),
        message=deployment_status.message(deployment),
    )


def _state(replica: Replica) -> schema.ReplicaState:
    if replica.retired and replica.is_serving:
        return schema.ReplicaState.PENDING_MIGRATION
    return schema.ReplicaState(replica.state.value)


def serve_details(machine: ControllerMachine, *, now: float, events: Iterable[str]) -> ServeDetails:
    """Return everything that the dashboard shows."""
    ongoing = machine.ongoing()
    epoch = time.time() - now
    return ServeDetails(
        status=serve_status(machine),
        deployments=tuple(
            DeploymentDetails(
                id=each.id,
                target_replicas=each.wanted,
                queued=each.scaling.queued,
                replicas=tuple(
                    _replica(replica, ongoing.get(replica.id, 0), epoch)
                    for replica in each.replicas.values()
                ),
                last_decision=str(each.scaling.last_decision or ""),
            )
            for each in machine.deployments()
        ),
        subscribers=machine.table.subscribers,
        table_version=machine.table.version,
        events=tuple(events),
        applications=tuple(each.info() for each in machine.applications.values()),
        http_addresses={
            each.node_id: each.http_address
            for each in machine.proxies.proxies.values()
            if each.http_address is not None and each.state == "HEALTHY"
        },
    )


def _replica(replica: Replica, ongoing: int, epoch: float) -> ReplicaDetails:
    return ReplicaDetails(
        replica_id=replica.id,
        state=_state(replica).value,
        pid=replica.pid,
        node_id=replica.node_id,
        actor_id=None,
        started_s=epoch + replica.created_at,
        constructor_s=replica.constructor_s,
        ongoing=ongoing,
        rank=replica.rank,
        message=replica.note,
    )
