"""Ids as objects."""

import pickle

import pytest

from syncline.core.ids import ActorID, JobID, NodeID, TaskID


def test_text_bytes_and_objects_convert_into_each_other():
    found = NodeID.from_hex("00ff" * 8)
    assert (found.hex(), found.binary()) == ("00ff" * 8, bytes.fromhex("00ff" * 8))
    assert found == NodeID(found.binary()) == NodeID.from_binary(found.binary())
    assert pickle.loads(pickle.dumps(found)) == found
    assert repr(found) == f"NodeID({found.hex()})"


def test_ids_of_different_classes_differ():
    assert ActorID.from_hex("aa") != TaskID.from_hex("aa")
    assert len({ActorID.from_hex("aa"), TaskID.from_hex("aa"), ActorID.from_hex("aa")}) == 2


def test_null_and_random_ids():
    assert JobID.nil().is_nil()
    assert (JobID.size(), len(JobID.from_random().binary())) == (4, 4)
    assert not TaskID.from_random().is_nil()
    assert JobID.from_int(1).hex() == "01000000"


def test_text_instead_of_bytes_is_refused():
    with pytest.raises(TypeError, match="from_hex"):
        NodeID("00ff")
