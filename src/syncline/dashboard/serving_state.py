"""Applications, deployments and replicas of a serve, from `serve/state.json`. Pure.

Records are untrusted: values of a wrong type are left out, and numbers of items are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from syncline.runs.json_values import Record, finite

MAX_ITEMS = 1_000
"""Maximum applications, deployments of one, and replicas of one."""
_TEXT = 20_000


@dataclass(frozen=True, kw_only=True)
class ReplicaView:
    """A replica."""

    id: str
    state: str
    pid: int | None
    node: str
    rank: int
    ongoing: int
    started: float | None
    constructor_s: float | None
    message: str

    @property
    def short_id(self) -> str:
        """The last part of the id, which differs between replicas."""
        return self.id.rpartition("#")[2]


@dataclass(frozen=True, kw_only=True)
class DeploymentView:
    """A deployment."""

    app: str
    name: str
    status: str
    message: str
    wanted: int
    queued: int
    last_decision: str
    calls: tuple[str, ...]
    """Deployments that it has called, as `APP#NAME`."""
    replicas: tuple[ReplicaView, ...]

    @property
    def key(self) -> str:
        """`APP#NAME`."""
        return f"{self.app}#{self.name}"

    @property
    def running(self) -> int:
        """Number of replicas that take calls."""
        return sum(replica.state in ("RUNNING", "PENDING_MIGRATION") for replica in self.replicas)

    @property
    def ongoing(self) -> int:
        """Number of calls in flight."""
        return sum(replica.ongoing for replica in self.replicas)


@dataclass(frozen=True, kw_only=True)
class ApplicationView:
    """An application."""

    name: str
    status: str
    message: str
    route: str
    """Route prefix; empty without HTTP."""
    ingress: str
    deployed: float | None
    deployments: tuple[DeploymentView, ...]

    def deployment(self, name: str) -> DeploymentView | None:
        """Return a deployment, or None if the name is unknown."""
        return next((each for each in self.deployments if each.name == name), None)


@dataclass(frozen=True, kw_only=True)
class ProxyView:
    """A proxy."""

    node: str
    status: str
    address: str


@dataclass(frozen=True, kw_only=True)
class ServingState:
    """State of a serve."""

    applications: tuple[ApplicationView, ...] = ()
    proxies: tuple[ProxyView, ...] = ()

    def application(self, name: str) -> ApplicationView | None:
        """Return an application, or None if the name is unknown."""
        return next((each for each in self.applications if each.name == name), None)


def serving_state(content: Record) -> ServingState:
    """Return the state in `state.json`."""
    proxies = content.get("proxies")
    return ServingState(
        applications=tuple(map(_application, _objects(content.get("applications")))),
        proxies=tuple(
            _proxy(node, each)
            for node, each in (proxies if isinstance(proxies, dict) else {}).items()
            if isinstance(each, dict)
        )[:MAX_ITEMS],
    )


def _application(value: Record) -> ApplicationView:
    name = text(value.get("name"))
    return ApplicationView(
        name=name,
        status=text(value.get("status")),
        message=text(value.get("message")),
        route=text(value.get("route")),
        ingress=text(value.get("ingress")),
        deployed=finite(value.get("deployed")),
        deployments=tuple(_deployment(name, each) for each in _objects(value.get("deployments"))),
    )


def _deployment(app: str, value: Record) -> DeploymentView:
    calls = value.get("calls")
    return DeploymentView(
        app=app,
        name=text(value.get("name")),
        status=text(value.get("status")),
        message=text(value.get("message")),
        wanted=whole(value.get("wanted")),
        queued=whole(value.get("queued")),
        last_decision=text(value.get("last_decision")),
        calls=tuple(map(text, calls[:MAX_ITEMS])) if isinstance(calls, list) else (),
        replicas=tuple(map(_replica, _objects(value.get("replicas")))),
    )


def _replica(value: Record) -> ReplicaView:
    pid = value.get("pid")
    return ReplicaView(
        id=text(value.get("id")),
        state=text(value.get("state")),
        pid=pid if isinstance(pid, int) and not isinstance(pid, bool) else None,
        node=text(value.get("node")),
        rank=whole(value.get("rank")),
        ongoing=whole(value.get("ongoing")),
        started=finite(value.get("started")),
        constructor_s=finite(value.get("constructor_s")),
        message=text(value.get("message")),
    )


def _proxy(node: str, value: Mapping[str, object]) -> ProxyView:
    address = value.get("address")
    where = ":".join(map(str, address)) if isinstance(address, list) and len(address) == 2 else ""
    return ProxyView(node=text(node), status=text(value.get("status")), address=where[:200])


def graph_levels(application: ApplicationView) -> list[list[DeploymentView]]:
    """Return the deployments by their distance from the ingress; deployments without calls last."""
    by_key = {each.key: each for each in application.deployments}
    ingress = by_key.get(f"{application.name}#{application.ingress}")
    levels: list[list[DeploymentView]] = []
    known: set[str] = set()
    current = [ingress] if ingress is not None else []
    while current:
        levels.append(current)
        known |= {each.key for each in current}
        called = dict.fromkeys(key for each in current for key in each.calls)
        current = [by_key[key] for key in called if key in by_key and key not in known]
    rest = [each for each in application.deployments if each.key not in known]
    return [*levels, rest] if rest else levels


def _objects(value: object) -> Sequence[Record]:
    items: Iterable[object] = value[:MAX_ITEMS] if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]


def text(value: object) -> str:
    """Return a text of bounded length; empty for other values."""
    return value[:_TEXT] if isinstance(value, str) else ""


def whole(value: object) -> int:
    """Return a count; 0 for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        return 0
    return value
