"""The proxies: one on each node that needs it, restarted when it ends. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from syncline.serve.controller.events import StartProxy, StatusChanged, StopProxy
from syncline.serve.controller.messages import ProxyFailed, ProxyReady, StartProxies
from syncline.serve.controller.step import Step
from syncline.serve.proxy_options import ProxyLocation

FREE_RESTARTS = 3
"""Consecutive restarts without a pause."""
BACKOFF_S = 0.2
BACKOFF_MAX_S = 10.0
KILL_S = 35.0
"""Seconds for a proxy to finish its requests."""

ProxyStateName = Literal["STARTING", "HEALTHY", "UNHEALTHY", "DRAINING"]


@dataclass(slots=True, eq=False)
class Proxy:
    """One proxy until its process has ended."""

    id: str
    node_id: str
    state: ProxyStateName = "STARTING"
    pid: int | None = None
    http_address: tuple[str, int] | None = None
    grpc_address: tuple[str, int] | None = None
    was_ready: bool = False


class ProxyFleet:
    """All proxies.

    Args:
        head_node: Node of the controller, which has a proxy unless proxies are disabled.
    """

    def __init__(self, step: Step, head_node: str) -> None:
        self._step = step
        self._head_node = head_node
        self.options: StartProxies | None = None
        """Options of the proxies; None before HTTP was started."""
        self.proxies: dict[str, Proxy] = {}
        self.error: bytes | None = None
        """Packed error of the last proxy that could not start, until one listens."""
        self.error_text = ""
        self._failures: dict[str, int] = {}  # by node, since a proxy listened there

    @property
    def is_wanted(self) -> bool:
        """True if there should be proxies."""
        options = self.options
        return options is not None and options.location != ProxyLocation.Disabled.value

    def conflict(self, options: StartProxies) -> str | None:
        """Return a warning if proxies already run with different options, which are kept."""
        if self.options is None or options.replace or _same(options, self.options):
            return None
        return (
            "Serve already runs with different HTTP options, which stay in effect: call "
            "`serve.shutdown()` before `serve.start(...)` to change them."
        )

    def start(self, options: StartProxies) -> None:
        """Set the options, unless proxies run with others and `options.replace` is False."""
        if self.options is not None:
            if _same(options, self.options) or not options.replace:
                return
            self._stop_all()
        self.options = options
        self.error, self.error_text = None, ""
        self._failures.clear()
        self._step.must_save = True

    def stop(self) -> None:
        """End all proxies."""
        self.options = None
        self._step.must_save = True
        self._stop_all()

    def _stop_all(self) -> None:
        for proxy in self.proxies.values():
            self._drain(proxy)

    def reconcile(self, nodes: Collection[str], busy_nodes: Collection[str]) -> None:
        """Start and stop proxies; `busy_nodes` have replicas."""
        wanted = self._wanted(nodes, busy_nodes)
        covered = {each.node_id for each in self.proxies.values() if each.state != "DRAINING"}
        for proxy in self.proxies.values():
            if proxy.node_id not in wanted:
                self._drain(proxy)
        for node_id in sorted(wanted - covered):
            if ("proxy_backoff", node_id) not in self._step.deadlines:
                self._start(node_id)

    def _wanted(self, nodes: Collection[str], busy_nodes: Collection[str]) -> set[str]:
        if self.options is None:
            return set()
        location = ProxyLocation(self.options.location)
        if location is ProxyLocation.Disabled:
            return set()
        if location is ProxyLocation.HeadOnly:
            return {self._head_node}
        return {self._head_node, *(node for node in busy_nodes if node in nodes)}

    def _start(self, node_id: str) -> None:
        assert self.options is not None
        proxy = Proxy(id=f"proxy-{self._step.new_suffix()}", node_id=node_id)
        self.proxies[proxy.id] = proxy
        self._step.must_save = True
        self._step.emit(StartProxy(proxy_id=proxy.id, node_id=node_id, options=self.options))

    def _drain(self, proxy: Proxy) -> None:
        if proxy.state == "DRAINING":
            return
        proxy.state = "DRAINING"
        self._step.must_save = True
        self._step.emit(StopProxy(proxy_id=proxy.id, force=False))
        self._step.after("proxy_kill", proxy.id, KILL_S)

    def kill(self, proxy_id: str) -> None:
        """Kill a proxy that did not exit in time."""
        if proxy_id in self.proxies:
            self._step.emit(StopProxy(proxy_id=proxy_id, force=True))

    def on_ready(self, event: ProxyReady) -> None:
        """A proxy listens."""
        proxy = self.proxies.get(event.proxy_id)
        if proxy is None:
            return
        if proxy.state != "DRAINING":
            proxy.state = "HEALTHY"
        proxy.pid, proxy.was_ready = event.pid, True
        proxy.http_address, proxy.grpc_address = event.http_address, event.grpc_address
        self._failures.pop(proxy.node_id, None)
        self.error, self.error_text = None, ""
        self._step.must_save = True
        self._step.emit(StatusChanged(app=None))
        where = [
            f"{name} on {address[0]}:{address[1]}"
            for name, address in (("HTTP", event.http_address), ("gRPC", event.grpc_address))
            if address is not None
        ]
        self._step.record(
            "proxy_started", f"A proxy serves {' and '.join(where) or 'handles'}.", pid=event.pid
        )

    def on_failed(self, event: ProxyFailed) -> None:
        """A proxy cannot start. If none has ever listened, give up, to allow other options."""
        proxy = self.proxies.get(event.proxy_id)
        if proxy is None:
            return
        proxy.state = "UNHEALTHY"
        self.error, self.error_text = event.error, event.traceback
        if not any(each.was_ready for each in self.proxies.values()):
            self.options = None
            self._step.must_save = True
        self._step.emit(StatusChanged(app=None))
        self._step.record(
            "proxy_failed", f"A proxy did not start: {event.traceback}", level="error"
        )

    def on_ended(self, proxy_id: str, cause: str) -> None:
        """The process of a proxy is gone."""
        proxy = self.proxies.pop(proxy_id, None)
        if proxy is None:
            return
        step, node = self._step, proxy.node_id
        step.must_save = True
        step.deadlines.cancel(("proxy_kill", proxy_id))
        step.emit(StatusChanged(app=None))
        if proxy.state == "DRAINING":
            return
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        if failures > FREE_RESTARTS or proxy.state == "UNHEALTHY":
            delay_s = BACKOFF_S * 2 ** max(0, failures - FREE_RESTARTS - 1)
            step.after("proxy_backoff", node, min(delay_s, BACKOFF_MAX_S))
        step.record(
            "proxy_ended",
            f"The proxy on node {node} ended and is replaced: {cause}",
            level="warning",
            cause=cause,
        )

    def is_listening(self) -> bool:
        """Return True if a proxy accepts requests."""
        return any(each.state == "HEALTHY" for each in self.proxies.values())


def _same(options: StartProxies, others: StartProxies) -> bool:
    return replace(options, replace=False) == replace(others, replace=False)
