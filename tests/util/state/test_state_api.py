"""Functions of the state API on an engine that answers with given rows."""

import pytest

from syncline.core.state_rows import StateListing, select
from syncline.util import state
from syncline.util.state.common import StateResource
from syncline.util.state.exception import RayStateApiException
from tests.core.fake_engine import running_fake_engine

ROWS = {
    "actors": [{"actor_id": "a", "state": "ALIVE", "class_name": "A"}],
    "tasks": [
        {"task_id": "t", "attempt_number": 0, "state": "FAILED"},
        {"task_id": "t", "attempt_number": 1, "state": "FINISHED"},
    ],
    "objects": [{"object_id": "o"}],
}


@pytest.fixture
def engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        state.list_cluster_events()  # starts it
        started[0].state = lambda resource, filters, limit: (
            select(ROWS[resource], filters, limit)
            if resource in ROWS
            else StateListing(unknown="it is a fake")
        )
        yield started[0]


def test_rows_are_found_by_id(engine):
    assert state.get_actor("a").class_name == "A"
    assert state.get_actor("b") is None
    assert [row.attempt_number for row in state.get_task("t")] == [0, 1]
    assert [row.object_id for row in state.get_objects("o")] == ["o"]


def test_an_unknown_list_is_an_error_unless_allowed(engine):
    with pytest.raises(RayStateApiException, match="it is a fake"):
        state.list_workers()
    assert state.list_workers(raise_on_missing_output=False) == []


def test_filters_are_tuples_of_column_predicate_and_value(engine):
    for wrong in ["state", ("state", "ALIVE"), ("state", "=", "ALIVE", 1)]:
        with pytest.raises(ValueError, match="not a tuple"):
            state.list_actors(filters=[wrong])
    assert len(state.list_actors(filters=[("STATE", "=", "alive")])) == 1


def test_the_client_lists_any_resource(engine):
    client = state.StateApiClient(address="auto")
    assert [row.actor_id for row in client.list(StateResource.ACTORS)] == ["a"]
    assert client.list(StateResource.CLUSTER_EVENTS) == []
