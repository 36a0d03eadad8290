"""Asking a team of nodes: probes in this process that can be broken, and the real probe on this
machine.
"""

import json
import socket

import pytest

from syncline.cli.doctor import examination
from syncline.cli.doctor.findings import GlooFacts
from syncline.cli.doctor.node_probes import Answer, NodeProbes, ThisMachine, first_line, node_names
from syncline.cli.doctor.probe import NodeProbe
from syncline.exceptions import GetTimeoutError


class FakeTeam(NodeProbes):
    """Nodes that are probes in this process; (node, method) pairs in `broken` fail."""

    def __init__(self, names, broken=()):
        self.addresses = dict.fromkeys(names, "127.0.0.1")
        self.probes = {name: NodeProbe() for name in names}
        self.broken = set(broken)

    def ask(self, calls, limit_s):
        answers = {}
        for name, (method, arguments) in calls.items():
            if (name, method) in self.broken:
                answers[name] = Answer(error="OSError: broken")
                continue
            try:
                answers[name] = Answer(value=getattr(self.probes[name], method)(*arguments))
            except OSError as error:
                answers[name] = Answer(error=first_line(error))
        return answers


def test_every_node_reaches_every_other():
    found = examination.links(FakeTeam("abc"), "abc", 30.0)
    assert {(link.source, link.target) for link in found} == {
        (s, t) for s in "abc" for t in "abc" if s != t
    }
    assert all(link.error is None for link in found)


def test_node_that_cannot_listen_is_reached_by_nobody():
    found = examination.links(FakeTeam("abc", {("b", "listen")}), "abc", 30.0)
    assert {(link.source, link.target) for link in found if link.error} == {("a", "b"), ("c", "b")}
    assert len(found) == 6


def test_other_server_on_the_port_is_no_link():
    probe = NodeProbe()
    port, greeting = probe.listen("127.0.0.1")
    targets = {"right": ("127.0.0.1", port, greeting), "wrong": ("127.0.0.1", port, b"another!")}
    answers = NodeProbe().reach(targets, 30.0)
    assert answers["right"] is None
    assert "another service answers" in answers["wrong"]


def test_port_where_nobody_listens_is_a_broken_link():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "127.0.0.1" in NodeProbe().reach({"nobody": ("127.0.0.1", port, b"x")}, 30.0)["nobody"]


def test_storage_is_written_by_one_and_read_by_all_and_left_clean(tmp_path):
    found = examination.storage(FakeTeam("ab"), "ab", str(tmp_path), 30.0)
    assert (found.write_error, dict(found.unseen)) == (None, {})
    assert list(tmp_path.iterdir()) == []


def test_directories_made_for_the_storage_check_are_removed_and_no_others(tmp_path):
    (tmp_path / "kept").mkdir()
    for path in (
        tmp_path / "kept",
        tmp_path / "kept" / "new" / "runs",
        f"file://{tmp_path}/kept/other",
    ):
        assert examination.storage(FakeTeam("ab"), "ab", str(path), 30.0).write_error is None
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_directory_that_somebody_uses_by_now_stays(tmp_path):
    probe = NodeProbe()
    name = probe.write(str(tmp_path / "runs"), "x")
    (tmp_path / "runs" / "run").mkdir()
    probe.remove(str(tmp_path / "runs"), name)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "run"]


def test_nodes_that_do_not_see_the_storage_are_named(tmp_path):
    team = FakeTeam("abc", {("b", "read")})
    assert dict(examination.storage(team, "abc", str(tmp_path), 30.0).unseen) == {
        "b": "OSError: broken"
    }
    (tmp_path / "file").touch()
    assert "file" in examination.storage(team, "abc", str(tmp_path / "file"), 30.0).write_error


def test_failed_rank_of_the_all_reduce_is_named():
    team = FakeTeam("ab", {("a", "open_rendezvous")})
    assert "cannot listen" in examination.gloo(team, "ab", 30.0).errors["a"]


def test_nodes_that_share_address_and_host_are_told_apart():
    nodes = [
        {"NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "h", "NodeID": node_id * 16}
        for node_id in "xy"
    ]
    assert node_names(nodes) == ["10.0.0.1 (h, xxxxxxxx)", "10.0.0.1 (h, yyyyyyyy)"]
    assert node_names(nodes[:1]) == ["10.0.0.1 (h)"]


def test_error_is_told_in_one_line():
    error = RuntimeError("many\nlines")
    error.cause = OSError("the cause\nand more")
    assert first_line(error) == "OSError: the cause"
    assert first_line(GetTimeoutError()) == "GetTimeoutError"


@pytest.mark.processes
def test_this_machine_is_examined_without_an_engine(syncline_command, tmp_path):
    done = syncline_command("doctor", "--storage-path", str(tmp_path), "--json")
    answer = json.loads(done.stdout)
    assert answer["nodes"] == [ThisMachine.NAME]
    assert answer["cluster"] is None
    assert done.exit_code == (0 if answer["ok"] else 1)
    statuses = {check["check"]: check["status"] for check in answer["checks"]}
    assert (statuses["storage"], statuses["python"], statuses["gloo"]) == ("ok", "ok", "ok")


def test_exit_code_is_1_if_a_line_is_wrong(syncline_command, tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "gloo", lambda *_: GlooFacts(seconds=0.0, errors={}))
    (tmp_path / "file").touch()
    done = syncline_command("doctor", "--storage-path", str(tmp_path / "file"))
    assert done.exit_code == 1
    assert "remedy:" in done.stdout
