"""The head of a cluster before Ray connects: its address, its token, and whether it is compatible.

Problems are reported within 10 s, because Ray itself would wait for minutes and flood the terminal.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path

import ray.exceptions
from ray._private import services
from ray._private.authentication import authentication_token_setup as ray_tokens
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.core.generated import gcs_pb2, gcs_service_pb2, ray_client_pb2

from syncline import settings
from syncline.core.cluster import compatibility, grpc_call
from syncline.core.cluster.token_sources import TOKEN_SOURCES, mode, token_source

CALL_TIMEOUT_S = 6.0
"""Seconds for one call to the head."""
NODE_WAIT_S = 3.0
"""Seconds until the head knows a node of this machine that has just started."""

_POLL_S = 0.2
_CLIENT_SCHEME = "ray://"
_METADATA_KEY, _METADATA_NAMESPACE = b"CLUSTER_METADATA", b"cluster"
"""Where the head stores its versions."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Address of a cluster's head."""

    address: str
    """As the program gave it, or as found."""
    host: str
    port: int
    is_client: bool
    """True for an address of Ray Client, which forwards requests to a program on the head."""
    is_found_here: bool = False
    """True if found through a node of this machine, rather than given."""

    @property
    def endpoint(self) -> str:
        """The address in Ray's form."""
        return f"{_CLIENT_SCHEME if self.is_client else ''}{self.host}:{self.port}"


def find(address: str, temp_dir: Path | None = None) -> Head:
    """Resolve `address`.

    Raises ValueError if it is malformed, and ConnectionError for "auto" if no cluster runs on this
    machine.
    """
    if address != "auto":
        return _parsed(address, f"`address={address!r}`")
    variable = settings.environment("RAY_ADDRESS")
    if variable and variable != "auto":
        return _parsed(variable, f"RAY_ADDRESS={variable!r}, which `address='auto'` uses,")
    return replace(
        _parsed(_on_this_machine(temp_dir), "the address that Ray stores on this machine"),
        is_found_here=True,
    )


def check(head: Head) -> None:
    """Check that a program can connect.

    Raises:
        ConnectionError: No server answers, it is not a cluster, it refuses this program, or no node
            of it runs on this machine.
        RuntimeError: It runs another version of Ray or Python.
    """
    if head.is_client:
        ping = ray_client_pb2.ClusterInfoRequest(type=ray_client_pb2.ClusterInfoType.PING)
        _call(head, "RayletDriver/ClusterInfo", ping.SerializeToString())
        return
    request = gcs_service_pb2.InternalKVGetRequest(key=_METADATA_KEY, namespace=_METADATA_NAMESPACE)
    reply = gcs_service_pb2.InternalKVGetReply.FromString(
        _call(head, "InternalKVGcsService/InternalKVGet", request.SerializeToString())
    )
    if reply.value:
        compatibility.check_cluster(head.address, reply.value)
    _wait_for_own_node(head)


def answers(head: Head) -> bool:
    """Return True if the head still answers."""
    try:
        _call(head, "NodeInfoGcsService/GetClusterId", b"")
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
            f"{called} is not the address of a cluster: give 'auto', 'local', 'host:port' (the "
            f"port of its head, 6379 by default) or 'ray://host:port' (the port of Ray Client, "
            f"10001 by default)"
        )
    return Head(address=address, host=host, port=int(port), is_client=is_client)


def _on_this_machine(temp_dir: Path | None) -> str:
    """Return the head's address of the cluster that has a node on this machine."""
    services.find_gcs_addresses.cache_clear()
    running = sorted(services.find_gcs_addresses())
    if len(running) == 1:
        return str(running[0])
    stored = services.find_bootstrap_address(None if temp_dir is None else str(temp_dir))
    if stored and (stored in running or not running):
        return str(stored)
    if running:
        raise ConnectionError(
            f"`address='auto'` is ambiguous: nodes of {len(running)} clusters run on this machine. "
            f"Set `address=` to one of {', '.join(map(repr, running))}."
        )
    raise ConnectionError(
        "`address='auto'`: no Ray runs on this machine (no process, no file in its temporary "
        "directory, and RAY_ADDRESS is not set). Start one with `syncline start --head`, give "
        "`address='host:port'`, or leave out `address` (and unset SYNCLINE_ADDRESS) or give "
        "'local' to run on this machine alone."
    )


def _call(head: Head, method: str, body: bytes) -> bytes:
    """Call the head and return the reply; ConnectionError with details if it fails."""
    call = grpc_call.Call(path=f"/ray.rpc.{method}", body=body, headers=token_headers())
    try:
        reply = grpc_call.call_server(
            head.host.strip("[]"), head.port, call, limit_s=CALL_TIMEOUT_S, tls=_tls()
        )
    except OSError as error:
        raise ConnectionError(_unreachable(head, error)) from None
    if reply.status == grpc_call.UNAUTHENTICATED:
        raise ConnectionError(f"the cluster at {head.address!r} refuses this program: {_refusal()}")
    if reply.status == grpc_call.UNIMPLEMENTED:
        raise ConnectionError(_wrong_port(head))
    return reply.body


def _tls() -> ssl.SSLContext | None:
    """Return the TLS context of a cluster with the variables RAY_USE_TLS and RAY_TLS_…"""
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
    """Wait for a living node on this machine, through which Ray connects; else ConnectionError."""
    deadline = time.monotonic() + NODE_WAIT_S
    while not (living := _living_nodes(head)) & set(services.find_node_ids()):
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"a cluster answers at {head.address!r}, but none of its {len(living)} living "
                f"nodes runs on this machine, and a program connects through one. Start one with "
                f"`syncline start --address={head.host}:{head.port}`, connect with "
                f"`address='ray://{head.host}:10001'`, or send the program to the cluster with "
                f"`syncline submit`."
            )
        time.sleep(_POLL_S)


def _living_nodes(head: Head) -> set[str]:
    request = gcs_service_pb2.GetAllNodeAddressAndLivenessRequest(
        state_filter=gcs_pb2.GcsNodeInfo.GcsNodeState.ALIVE
    )
    body = _call(
        head, "NodeInfoGcsService/GetAllNodeAddressAndLiveness", request.SerializeToString()
    )
    reply = gcs_service_pb2.GetAllNodeAddressAndLivenessReply.FromString(body)
    return {node.node_id.hex() for node in reply.node_info_list}


def _unreachable(head: Head, error: OSError) -> str:
    what = "Ray Client of a cluster" if head.is_client else "the head of a cluster"
    port = (
        "10001, set by `ray start --ray-client-server-port`"
        if head.is_client
        else "6379, set by `ray start --port`"
    )
    return (
        f"{what} does not answer at {head.address!r}: {error.strerror or error}. Tasks cannot run "
        f"without it. Check the address (the default port is {port}; 8265 is the dashboard's), "
        f"that the cluster runs, and that no firewall blocks the connection."
    )


def _wrong_port(head: Head) -> str:
    if head.is_client:
        return (
            f"the server at {head.address!r} is not Ray Client: its port is 10001 by default "
            f"(`ray start --ray-client-server-port`), 6379 is the head's own. Check the port, or "
            f"give 'host:port' on a machine of the cluster."
        )
    return (
        f"the server at {head.address!r} is not the head of a cluster, though perhaps a part of "
        f"one: the head's port is 6379 by default, and for Ray Client's port 10001 the address is "
        f"'ray://{head.host}:{head.port}'. Check the port."
    )


# -- the cluster's token


def refresh_token(*, is_found_here: bool) -> None:
    """Apply the current environment; Ray reads it only on import.

    A cluster found on this machine gets the token that is stored here, as with Ray: it belongs to
    the same user. An address given by the program gets a token only if RAY_AUTH_MODE says so,
    because any server may be there.
    """
    ray_tokens.Config.initialize("")
    ray_tokens.AuthenticationTokenLoader.instance().reset_cache()
    if is_found_here:
        ray_tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def token_headers() -> dict[str, str]:
    """Return the headers for every call; ConnectionError if a required token is missing."""
    if not is_token_auth_enabled():
        return {}
    try:
        return dict(ray_tokens.AuthenticationTokenLoader.instance().get_token_for_http_header())
    except ray.exceptions.AuthenticationError:
        path = settings.environment("RAY_AUTH_TOKEN_PATH")
        reason = (
            f"the file of RAY_AUTH_TOKEN_PATH={path!r} is missing or empty"
            if path
            else "there is none"
        )
        raise ConnectionError(
            f"RAY_AUTH_MODE=token requires the cluster's token, but {reason}: put it "
            f"{TOKEN_SOURCES}, or unset RAY_AUTH_MODE for a cluster without tokens."
        ) from None


def _refusal() -> str:
    if not is_token_auth_enabled():
        return (
            f"it requires a token, and this program sends none ({mode()}). Set "
            f"RAY_AUTH_MODE=token, and put the cluster's token {TOKEN_SOURCES}."
        )
    return (
        f"it rejects the token that this program sends, from {token_source()}. "
        f"Put the cluster's token {TOKEN_SOURCES}."
    )
