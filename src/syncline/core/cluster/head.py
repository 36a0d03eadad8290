"""The head of the cluster, before Ray connects to it: where it is, whether it lets this program in,
and whether the two fit together.

What does not work is told here, within 10 s: Ray itself would wait for minutes, and fill the
terminal.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ray._private import services
from ray.core.generated import gcs_pb2, gcs_service_pb2, ray_client_pb2

from syncline import settings
from syncline.core.cluster import probe, tokens, versions

PROBE_S = 6.0
"""How long the head may take to answer one question."""
NODE_WAIT_S = 3.0
"""How long a node of this machine that has just been started may take until the head knows it."""

_POLL_S = 0.2
_CLIENT_SCHEME = "ray://"
_METADATA_KEY, _METADATA_NAMESPACE = b"CLUSTER_METADATA", b"cluster"
"""Where a head keeps the versions that it runs."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where the head of a cluster listens."""

    address: str
    """As the program named it, or as it was found."""
    host: str
    port: int
    is_client: bool
    """Whether the address is of Ray Client, which carries this program's requests to a program on
    the head.
    """
    is_found_here: bool = False
    """Whether a node of this machine led to it, rather than the program or its environment."""

    @property
    def endpoint(self) -> str:
        """The address as Ray takes it."""
        return f"{_CLIENT_SCHEME if self.is_client else ''}{self.host}:{self.port}"


def find(address: str, temp_dir: Path | None = None) -> Head:
    """Where `address` leads. ValueError for what is no address, ConnectionError for "auto" without
    a cluster on this machine.
    """
    if address != "auto":
        return _parsed(address, f"`address={address!r}`")
    variable = settings.environment("RAY_ADDRESS")
    if variable and variable != "auto":
        return _parsed(variable, f"RAY_ADDRESS={variable!r}, which `address='auto'` leads to,")
    return replace(
        _parsed(_on_this_machine(temp_dir), "the address that Ray keeps on this machine"),
        is_found_here=True,
    )


def check(head: Head) -> None:
    """Return if a program can connect.

    Raises:
        ConnectionError: Nobody answers, it is no cluster, it refuses this program, or no node of it
        runs on this machine. RuntimeError: It runs another version of Ray or Python.
    """
    if head.is_client:
        ping = ray_client_pb2.ClusterInfoRequest(type=ray_client_pb2.ClusterInfoType.PING)
        _ask(head, "RayletDriver/ClusterInfo", ping.SerializeToString())
        return
    question = gcs_service_pb2.InternalKVGetRequest(
        key=_METADATA_KEY, namespace=_METADATA_NAMESPACE
    )
    reply = gcs_service_pb2.InternalKVGetReply.FromString(
        _ask(head, "InternalKVGcsService/InternalKVGet", question.SerializeToString())
    )
    if reply.value:
        versions.check_cluster(head.address, reply.value)
    _wait_for_own_node(head)


def answers(head: Head) -> bool:
    """Whether a head that a program is connected to is still there."""
    try:
        _ask(head, "NodeInfoGcsService/GetClusterId", b"")
    except ConnectionError:
        return False
    return True


def _parsed(address: str, called: str) -> Head:
    is_client = address.startswith(_CLIENT_SCHEME)
    host, separator, port = address.removeprefix(_CLIENT_SCHEME).rpartition(":")
    if (
        not separator
        or not host
        or "/" in host
        or not port.isdecimal()
        or not 0 < int(port) < 2**16
    ):
        raise ValueError(
            f"{called} is no address of a cluster: give 'auto', 'local', 'host:port' (the port of its head, 6379 by default) or "
            f"'ray://host:port' (its port for Ray Client, 10001 by default)"
        )
    return Head(address=address, host=host, port=int(port), is_client=is_client)


def _on_this_machine(temp_dir: Path | None) -> str:
    """The head of the cluster that a node of this machine belongs to."""
    services.find_gcs_addresses.cache_clear()
    running = sorted(services.find_gcs_addresses())
    if len(running) == 1:
        return str(running[0])
    kept = services.find_bootstrap_address(None if temp_dir is None else str(temp_dir))
    if kept and (kept in running or not running):
        return str(kept)
    if running:
        raise ConnectionError(
            f"`address='auto'`: nodes of {len(running)} clusters run on this machine, and it is not known which you mean: give "
            f"`address=` one of {', '.join(map(repr, running))}."
        )
    raise ConnectionError(
        "`address='auto'`: no Ray runs on this machine (no process of it, nothing in its temporary directory, and RAY_ADDRESS is not "
        "set). Start one with `syncline start --head`, give `address='host:port'`, or leave out `address` to run on this machine alone."
    )


def _ask(head: Head, method: str, body: bytes) -> bytes:
    """What the head answers. ConnectionError, saying what was tried, where it is none or
    refuses.
    """
    call = probe.Call(path=f"/ray.rpc.{method}", body=body, headers=tokens.headers())
    try:
        answer = probe.ask(head.host.strip("[]"), head.port, call, limit_s=PROBE_S, tls=_tls())
    except OSError as error:
        raise ConnectionError(_unreachable(head, error)) from None
    if answer.status == probe.UNAUTHENTICATED:
        raise ConnectionError(
            f"the cluster at {head.address!r} does not let this program in: {tokens.refused()}"
        )
    if answer.status == probe.UNIMPLEMENTED:
        raise ConnectionError(_another_port(head))
    return answer.body


def _tls() -> ssl.SSLContext | None:
    """For a cluster whose connections are encrypted, which the variables RAY_USE_TLS and RAY_TLS_…
    say.
    """
    if (settings.environment("RAY_USE_TLS") or "0").lower() not in ("1", "true"):
        return None
    context = ssl.create_default_context(cafile=settings.environment("RAY_TLS_CA_CERT"))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    certificate = settings.environment("RAY_TLS_SERVER_CERT")
    if certificate:
        context.load_cert_chain(certificate, settings.environment("RAY_TLS_SERVER_KEY"))
    return context


def _wait_for_own_node(head: Head) -> None:
    """ConnectionError where this machine has no living node of the cluster: Ray connects a program
    through one.
    """
    deadline = time.monotonic() + NODE_WAIT_S
    while not (living := _living_nodes(head)) & set(services.find_node_ids()):
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"a cluster answers at {head.address!r}, but none of its {len(living)} living nodes runs on this machine, and a "
                f"program connects through one. Start one with `syncline start --address={head.host}:{head.port}`, connect with "
                f"`address='ray://{head.host}:10001'`, or send the program to the cluster with `syncline submit`."
            )
        time.sleep(_POLL_S)


def _living_nodes(head: Head) -> set[str]:
    question = gcs_service_pb2.GetAllNodeAddressAndLivenessRequest(
        state_filter=gcs_pb2.GcsNodeInfo.GcsNodeState.ALIVE
    )
    body = _ask(
        head, "NodeInfoGcsService/GetAllNodeAddressAndLiveness", question.SerializeToString()
    )
    return {
        node.node_id.hex()
        for node in gcs_service_pb2.GetAllNodeAddressAndLivenessReply.FromString(
            body
        ).node_info_list
    }


def _unreachable(head: Head, error: OSError) -> str:
    what = "Ray Client of a cluster" if head.is_client else "the head of a cluster"
    port = (
        "10001, that of `ray start --ray-client-server-port`"
        if head.is_client
        else "6379, that of `ray start --port`"
    )
    return (
        f"{what} does not answer at {head.address!r}: {error.strerror or error}. Tasks cannot run without it. Check the address (the port "
        f"is by default {port}; 8265 is the dashboard's), that the cluster runs, and that no firewall is between."
    )


def _another_port(head: Head) -> str:
    if head.is_client:
        return (
            f"what answers at {head.address!r} is not Ray Client: its port is 10001 by default (`ray start --ray-client-server-port`), "
            f"6379 is the head's own. Check the port, or give 'host:port' on a machine of the cluster."
        )
    return (
        f"what answers at {head.address!r} is not the head of a cluster, though a part of one perhaps: the head's port is 6379 by default, "
        f"and for 10001, Ray Client's, the address is 'ray://{head.host}:{head.port}'. Check the port."
    )
