"""What a program is told before Ray connects: addresses that are none, and heads that do not
answer, refuse, or do not fit.
"""

from __future__ import annotations

import importlib.util
import json
import socket

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from ray.core.generated import gcs_pb2, gcs_service_pb2

import syncline
from syncline.core.cluster import head as heads
from syncline.core.cluster import probe, tokens, versions
from syncline.core.cluster.head import Head

HEAD = Head(address="h:6379", host="h", port=6379, is_client=False)
CLIENT = Head(address="ray://h:10001", host="h", port=10001, is_client=True)
NODE_ID = "ab" * 28


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    tokens.refresh(is_found_here=False)
    yield
    monkeypatch.undo()
    tokens.refresh(is_found_here=False)


@pytest.fixture
def answers(monkeypatch):
    """What the head says, by method; answers are `probe.Answer`s, or errors to raise."""
    said = {
        "InternalKVGet": metadata(),
        "GetAllNodeAddressAndLiveness": living(NODE_ID),
        "ClusterInfo": probe.Answer(status=0, body=b""),
    }

    def ask(host, port, call, **limits):
        answer = said[call.path.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(probe, "ask", ask)
    monkeypatch.setattr(heads.services, "find_node_ids", lambda: {NODE_ID})
    monkeypatch.setattr(heads, "NODE_WAIT_S", 0.0)
    return said


def metadata(**told):
    here = versions.Versions.here()
    value = json.dumps({"ray_version": here.ray, "python_version": here.python, **told}).encode()
    return probe.Answer(
        status=0, body=gcs_service_pb2.InternalKVGetReply(value=value).SerializeToString()
    )


def living(*node_ids):
    nodes = [gcs_pb2.GcsNodeAddressAndLiveness(node_id=bytes.fromhex(id)) for id in node_ids]
    return probe.Answer(
        status=0,
        body=gcs_service_pb2.GetAllNodeAddressAndLivenessReply(
            node_info_list=nodes
        ).SerializeToString(),
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


# -- where an address leads


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
def test_what_is_no_address_is_refused_with_what_is_one(address):
    with pytest.raises(
        ValueError, match=r"no address of a cluster: give 'auto', 'local', 'host:port'"
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
        (["a:1"], "old:1", "a:1"),  # what is kept may be of a cluster that has died
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
    """What Ray finds on a machine."""

    def __init__(self, running, kept):
        def find_gcs_addresses():
            return frozenset(running)

        find_gcs_addresses.cache_clear = lambda: None
        self.find_gcs_addresses = find_gcs_addresses
        self.find_bootstrap_address = lambda temp_dir: kept


# -- what its head says


def test_a_head_that_fits_lets_the_program_in(answers):
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
    answers["InternalKVGet"] = metadata(
        python_version=f"{versions.Versions.here().python_minor}.99"
    )
    heads.check(HEAD)


def test_a_head_that_says_nothing_of_its_versions_yet_is_left_to_ray(answers):
    answers["InternalKVGet"] = probe.Answer(status=0, body=b"")
    heads.check(HEAD)


@pytest.mark.parametrize("head", [HEAD, CLIENT])
@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("no answer within 6 s"),
        probe.AnotherServer("a web server"),
    ],
)
def test_nobody_or_somebody_else_at_the_address_is_named_with_what_to_check(answers, head, error):
    answers.update(dict.fromkeys(answers, error))
    with pytest.raises(
        ConnectionError,
        match=f"{head.address}.*{error.strerror or error}.*Check the address.*firewall",
    ):
        heads.check(head)


def test_a_port_of_another_part_of_ray_is_told_apart(answers):
    answers.update(dict.fromkeys(answers, probe.Answer(status=probe.UNIMPLEMENTED, body=b"")))
    with pytest.raises(ConnectionError, match="'ray://h:6379'. Check the port"):
        heads.check(HEAD)
    with pytest.raises(ConnectionError, match="not Ray Client: its port is 10001"):
        heads.check(CLIENT)


def test_a_cluster_of_which_no_node_runs_here_names_the_ways_in(answers):
    answers["GetAllNodeAddressAndLiveness"] = living("cd" * 28, "ef" * 28)
    with pytest.raises(
        ConnectionError,
        match=r"none of its 2 living nodes .*syncline start --address=h:6379.*ray://h:10001.*syncline submit",
    ):
        heads.check(HEAD)


# -- tokens


def refusal(answers):
    answers["InternalKVGet"] = probe.Answer(status=probe.UNAUTHENTICATED, body=b"")
    tokens.refresh(is_found_here=False)
    with pytest.raises(ConnectionError) as caught:
        heads.check(HEAD)
    return str(caught.value)


def test_a_program_that_sends_no_token_is_told_how_to(answers):
    told = refusal(answers)
    assert (
        "asks for a token, and this program sends none (RAY_AUTH_MODE is not set). Set RAY_AUTH_MODE=token"
        in told
    )
    assert all(
        place in told for place in ("RAY_AUTH_TOKEN,", "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
    )


def test_a_token_that_is_refused_is_named_by_its_place(answers, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    assert "refuses the one that this program sends, from RAY_AUTH_TOKEN." in refusal(answers)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    token = tmp_path / "token"
    token.write_text("b" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    assert f"from RAY_AUTH_TOKEN_PATH='{token}'" in refusal(answers)


def test_a_token_that_is_nowhere_is_told_before_anybody_is_asked(answers, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    assert "is missing or empty" in refusal(answers)


def test_the_token_goes_with_the_question(monkeypatch):
    assert tokens.headers() == {}
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    tokens.refresh(is_found_here=False)
    assert tokens.headers() == {"authorization": f"Bearer {'a' * 64}"}


# -- what `init` makes of it


def test_init_without_a_cluster_at_the_address_leaves_nothing_behind(capfd):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError, match=f"'{address}': Connection refused"):
        syncline.init(address)
    assert not syncline.is_initialized()
    assert capfd.readouterr() == ("", "")


def test_older_forms_lead_to_the_same_place():
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.warns(DeprecationWarning, match="redis_address"),
        pytest.raises(ConnectionError, match=address),
    ):
        syncline.init(redis_address=address, _redis_password="5241590000000000")


def test_a_name_that_does_not_resolve_is_told():
    with pytest.raises(ConnectionError, match=r"'no-such-host\.invalid:6379'"):
        syncline.init("no-such-host.invalid:6379")
