"""Rows and options of the state API."""

from syncline.util.state.common import SCHEMAS, ActorState, ListApiOptions, StateResource, TaskState

ROW = {"actor_id": "a", "state": "ALIVE", "pid": 3, "num_restarts": 1, "unknown": 5}


def test_columns_are_attributes_and_keys():
    row = ActorState.of(ROW, detail=True)
    assert (row.actor_id, row["state"], row.get("pid"), row.num_restarts) == ("a", "ALIVE", 3, 1)
    assert row.get("nothing", 7) == 7
    assert row.class_name is None
    row["state"] = "DEAD"
    assert row.asdict()["state"] == "DEAD"


def test_detail_columns_are_empty_without_detail():
    assert ActorState.of(ROW, detail=False).num_restarts is None
    assert "num_restarts" not in ActorState.base_columns()
    assert ActorState.base_columns() < ActorState.columns() == ActorState.detail_columns()


def test_some_columns_cannot_be_in_a_filter():
    assert {"state", "name", "placement_group_id"} <= ActorState.filterable_columns()
    assert "required_resources" not in ActorState.filterable_columns()
    assert "events" not in TaskState.filterable_columns()


def test_every_resource_but_events_has_a_class():
    assert set(SCHEMAS) == set(StateResource) - {StateResource.CLUSTER_EVENTS}
    assert ListApiOptions(filters=None).filters == []
