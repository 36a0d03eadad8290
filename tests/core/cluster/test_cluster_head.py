"""Errors before Ray connects: malformed addresses, and heads that are silent or incompatible."""

from __future__ import annotations

import importlib.util
import json
import platform
import socket

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

import ray
from ray.core.generated import gcs_pb2, gcs_service_pb2

import syncline
from syncline.core.cluster import grpc_call
from syncline.core.cluster import head as heads
from syncline.core.cluster.head import Head

HEAD = Head(address="h:6379", host="h", port=6379, is_client=False)
CLIENT = Head(address="ray://h:10001", host="h", port=10001, is_client=True)
NODE_ID = "ab" * 28


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    heads.refresh_token(is_found_here=False)
    yield
    monkeypatch.undo()
    heads.refresh_token(is_found_here=False)


@pytest.fixture
def answers(monkeypatch):
    """Replies of the head by method: `grpc_call.Answer`s, or errors to raise."""
    said = {
        "InternalKVGet": metadata(),
        "GetAllNodeAddressAndLiveness": living(NODE_ID),
        "ClusterInfo": grpc_call.Answer(status=0, body=b""),
    }

    def call_server(host, port, call, **limits):
        answer = said[call.path.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(grpc_call, "call_server", call_server)
    monkeypatch.setattr(heads.services, "find_node_ids", lambda: {NODE_ID})
    monkeypatch.setattr(heads, "NODE_WAIT_S", 0.0)
    return said


def metadata(**told):
    here = {"ray_version": ray.__version__, "python_version": platform.python_version()}
    value = json.dumps({**here, **told}).encode()
    return grpc_call.Answer(
        status=0, body=gcs_service_pb2.InternalKVGetReply(value=value).SerializeToString()
    )


def living(*node_ids):
    nodes = [gcs_pb2.GcsNodeAddressAndLiveness(node_id=bytes.fromhex(id)) for id in node_ids]
    return grpc_call.Answer(
        status=0,
        body=gcs_service_pb2.GetAllNodeAddressAndLivenessReply(
            node_info_list=nodes
        ).SerializeToString(),
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


# -- addresses


def test_addresses_of_heads_and_of_ray_client():
    assert heads.find("10.0.0.1:6379") == Head(
        address="10.0.0.1:6379", host="10.0.0.1", port=6379, is_client=False
    )
    assert heads.find("ray://name:10001") == Head(
        address="ray://name:10001", host="name", port=10001, is_client=True
    )
    assert heads.find("[::1]:6379").host == "[::1]"
    assert heads.find("ray://name:10001").endpoint == "ray://name:10001"


@pytest.mark.parametrize(
    "address",
    ["host", "host:", ":6379", "host:x", "host:0", "host:70000", "http://host:8265", "ray://host"],
)
def test_a_malformed_address_is_refused(address):
    with pytest.raises(
        ValueError, match=r"not the address of a cluster: give 'auto', 'local', 'host:port'"
    ):
        heads.find(address)


def test_auto_follows_rays_variable(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert heads.find("auto").endpoint == "10.0.0.2:6379"
    assert not heads.find("auto").is_found_here
    monkeypatch.setenv("RAY_ADDRESS", "http://10.0.0.2:8265")
    with pytest.raises(ValueError, match="RAY_ADDRESS='http://10.0.0.2:8265'"):
        heads.find("auto")


@pytest.mark.parametrize(
    ("running", "kept", "found"),
    [
        (["a:1"], None, "a:1"),
        (["a:1"], "old:1", "a:1"),  # the stored address may be of a dead cluster
        ([], "a:1", "a:1"),
        (["a:1", "b:1"], "b:1", "b:1"),
        (["a:1", "b:1"], "old:1", "2 clusters run on this machine.*'a:1', 'b:1'"),
        (["a:1", "b:1"], None, "2 clusters run on this machine"),
        ([], None, "no Ray runs on this machine.*syncline start --head"),
    ],
)
def test_auto_finds_the_cluster_of_this_machine(monkeypatch, running, kept, found):
    finder = heads.services.find_gcs_addresses
    monkeypatch.setattr(finder, "cache_clear", lambda: None, raising=False)
    monkeypatch.setattr(heads, "services", FakeServices(running, kept))
    if ":" in found and " " not in found:
        assert heads.find("auto") == Head(
            address=found, host=found[0], port=1, is_client=False, is_found_here=True
        )
    else:
        with pytest.raises(ConnectionError, match=found):
            heads.find("auto")


class FakeServices:
    """Ray's discovery on a machine."""

    def __init__(self, running, kept):
        def find_gcs_addresses():
            return frozenset(running)

        find_gcs_addresses.cache_clear = lambda: None
        self.find_gcs_addresses = find_gcs_addresses
        self.find_bootstrap_address = lambda temp_dir: kept


# -- replies of the head


def test_a_compatible_head_is_accepted(answers):
    heads.check(HEAD)
    heads.check(CLIENT)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (
            {"ray_version": "2.1.0"},
            "runs Ray 2.1.0 on Python .* this program Ray .*pip install ray==2.1.0",
        ),
        (
            {"python_version": "3.9.1"},
            "on Python 3.9.1, this program .*Run the program with Python 3.9 ",
        ),
    ],
)
def test_other_versions_are_named_with_those_of_the_program(answers, told, named):
    answers["InternalKVGet"] = metadata(**told)
    with pytest.raises(RuntimeError, match=named):
        heads.check(HEAD)


def test_the_third_number_of_pythons_version_does_not_matter(answers):
    minor = platform.python_version().rpartition(".")[0]
    answers["InternalKVGet"] = metadata(python_version=f"{minor}.99")
    heads.check(HEAD)


def test_a_head_without_versions_is_left_to_ray(answers):
    answers["InternalKVGet"] = grpc_call.Answer(status=0, body=b"")
    heads.check(HEAD)


@pytest.mark.parametrize("head", [HEAD, CLIENT])
@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("no answer within 6 s"),
        grpc_call.NotGrpcError("a web server"),
    ],
)
def test_a_missing_or_wrong_server_is_reported_with_what_to_check(answers, head, error):
    answers.update(dict.fromkeys(answers, error))
    with pytest.raises(
        ConnectionError,
        match=f"{head.address}.*{error.strerror or error}.*Check the address.*firewall",
    ):
        heads.check(head)


def test_a_port_of_another_part_of_ray_is_recognized(answers):
    answers.update(
        dict.fromkeys(answers, grpc_call.Answer(status=grpc_call.UNIMPLEMENTED, body=b""))
    )
    with pytest.raises(ConnectionError, match="'ray://h:6379'. Check the port"):
        heads.check(HEAD)
    with pytest.raises(ConnectionError, match="not Ray Client: its port is 10001"):
        heads.check(CLIENT)


def test_a_cluster_without_a_local_node_names_other_ways_to_connect(answers):
    answers["GetAllNodeAddressAndLiveness"] = living("cd" * 28, "ef" * 28)
    with pytest.raises(
        ConnectionError,
        match=r"none of its 2 living nodes .*syncline start --address=h:6379.*ray://h:10001.*"
        r"syncline submit",
    ):
        heads.check(HEAD)


# -- tokens


def refusal(answers):
    answers["InternalKVGet"] = grpc_call.Answer(status=grpc_call.UNAUTHENTICATED, body=b"")
    heads.refresh_token(is_found_here=False)
    with pytest.raises(ConnectionError) as caught:
        heads.check(HEAD)
    return str(caught.value)


def test_a_missing_token_is_reported_with_the_remedy(answers):
    told = refusal(answers)
    assert (
        "requires a token, and this program sends none (RAY_AUTH_MODE is not set). "
        "Set RAY_AUTH_MODE=token" in told
    )
    assert all(
        place in told for place in ("RAY_AUTH_TOKEN,", "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
    )


def test_a_rejected_token_is_named_by_its_source(answers, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    assert "rejects the token that this program sends, from RAY_AUTH_TOKEN." in refusal(answers)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    token = tmp_path / "token"
    token.write_text("b" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    assert f"from RAY_AUTH_TOKEN_PATH='{token}'" in refusal(answers)


def test_a_missing_token_fails_before_the_call(answers, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    assert "is missing or empty" in refusal(answers)


def test_the_token_is_sent_as_a_header(monkeypatch):
    assert heads.token_headers() == {}
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    heads.refresh_token(is_found_here=False)
    assert heads.token_headers() == {"authorization": f"Bearer {'a' * 64}"}


# -- `init`


def test_init_without_a_cluster_at_the_address_leaves_nothing_behind(capfd):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError, match=f"'{address}': Connection refused"):
        syncline.init(address)
    assert not syncline.is_initialized()
    assert capfd.readouterr() == ("", "")


def test_older_spellings_are_equivalent():
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.warns(DeprecationWarning, match="redis_address"),
        pytest.raises(ConnectionError, match=address),
    ):
        syncline.init(redis_address=address, _redis_password="5241590000000000")


def test_an_unknown_host_name_is_reported():
    with pytest.raises(ConnectionError, match=r"'no-such-host\.invalid:6379'"):
        syncline.init("no-such-host.invalid:6379")
