"""Paths to applications."""

import dataclasses

import pytest

from syncline.serve.wire.routes import ApplicationRoute, DeploymentId, DeploymentRoute, TableUpdate
from tests.serve.proxy.fakes import make_table


def found(table, path: bytes) -> str | None:
    route = table.find(path)
    return None if route is None else route.prefix


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        (b"/", "/"),
        (b"/x", "/"),
        (b"/app", "/app"),
        (b"/app/", "/app"),
        (b"/app/x/y", "/app"),
        (b"/apple", "/"),
        (b"/app/sub", "/app/sub"),
        (b"/app/sub/x", "/app/sub"),
        (b"/app/subway", "/app"),
        (b"/app%2Fsub", "/app/sub"),
        (b"/%61pp", "/app"),
        (b"/caf%C3%A9/x", "/café"),
        (b"/%FF", "/"),
        (b"//app", "/"),
        (b"/app/../other", "/app"),
    ],
)
def test_longest_prefix_of_whole_segments(path, prefix) -> None:
    table = make_table("/", "/app", "/app/sub", "/café")
    assert found(table, path) == prefix
    assert found(table, path) == prefix  # from the cache


def test_without_an_application_at_the_root() -> None:
    table = make_table("/app/")
    assert found(table, b"/") is None
    assert found(table, b"/other") is None
    assert found(table, b"/app/x") == "/app"


def test_trailing_slash_of_a_prefix_is_dropped() -> None:
    table = make_table("/app/")
    assert table.find(b"/app/x").root_path == "/app"
    assert make_table("/").find(b"/x").root_path == ""


def test_updates_replace_the_applications() -> None:
    table = make_table("/old")
    id = DeploymentId("new", "Echo")
    table.find(b"/new")
    table.update(
        TableUpdate(
            version=2,
            deployments=(DeploymentRoute(id=id, idempotent=True),),
            applications=(
                ApplicationRoute(name="new", route_prefix="/new", ingress=id, is_asgi=True),
                ApplicationRoute(name="inner", route_prefix=None, ingress=id, is_asgi=True),
            ),
        )
    )
    assert found(table, b"/old") is None
    assert found(table, b"/new") == "/new"
    assert table.find(b"/new").idempotent
    assert table.prefixes() == {"/new": "new"}


def test_statistics_survive_an_update_of_the_application() -> None:
    table = make_table("/app")
    table.find(b"/app").statistics.record("GET", 200, 0.1)
    table.update(TableUpdate(version=2, deployments=()))
    assert table.find(b"/app").statistics.latency.count == 1


def test_cache_is_bounded() -> None:
    table = make_table("/app")
    for number in range(10_000):
        table.find(b"/app/%d" % number)
    assert len(table._cache) <= 4096


PATTERNS = ("/", "/users/{name}", "/items/{id:int}", "/items/{id}", "/files/{path:path}", "/a.b")


def table_with_patterns(prefix: str):
    table = make_table(prefix)
    (application,) = table.applications.values()
    changed = dataclasses.replace(application, patterns=PATTERNS)
    table.update(TableUpdate(version=2, applications=(changed,)))
    return table


@pytest.mark.parametrize("prefix", ["/", "/app"])
@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/", "/"),
        ("/users/ann", "/users/{name}"),
        ("/users/%2Fann", ""),
        ("/users/ann/x", ""),
        ("/items/5", "/items/{id:int}"),
        ("/items/five", "/items/{id}"),
        ("/files/a/b/c", "/files/{path:path}"),
        ("/a.b", "/a.b"),
        ("/axb", ""),
    ],
)
def test_requests_are_labelled_by_the_pattern_of_their_path(prefix, path, pattern) -> None:
    table = table_with_patterns(prefix)
    below = prefix.rstrip("/")
    route = table.find((below + path).encode())
    assert route.label == (below + pattern if pattern else prefix)
    assert (route.prefix, route.root_path) == (prefix, below)


def test_the_prefix_alone_is_the_path_of_the_root() -> None:
    assert table_with_patterns("/app").find(b"/app").label == "/app/"


def test_paths_of_one_pattern_are_counted_together() -> None:
    table = table_with_patterns("/app")
    for path in (b"/app/users/a", b"/app/users/b", b"/app/none"):
        table.find(path).statistics.record("GET", 200, 0.1)
    table.update(TableUpdate(version=3))
    table.find(b"/app/users/c").statistics.record("GET", 200, 0.1)
    counts = {label: each.latency.count for (_, label), each in table.statistics().items()}
    assert counts == {"/app": 1, "/app/users/{name}": 3}
