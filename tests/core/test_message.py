"""Messages behave like frozen dataclasses with keyword-only fields."""

import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from syncline.core.message import Message


class Told(Message):
    """What a test says."""

    name: str
    count: int = 1
    labels: dict[str, str] = field(default_factory=dict)


class ToldLoudly(Told):
    """The same with a volume."""

    count: int = 2
    volume: float


def test_fields_have_their_values_and_defaults():
    first, second = Told(name="a"), Told(name="b", count=3, labels={"x": "y"})
    assert (first.name, first.count, first.labels) == ("a", 1, {})
    assert (second.name, second.count, second.labels) == ("b", 3, {"x": "y"})
    assert first.labels is not Told(name="a").labels


def test_subclasses_inherit_fields_and_may_change_their_defaults():
    loud = ToldLoudly(name="a", volume=0.5)
    assert (loud.name, loud.count, loud.labels, loud.volume) == ("a", 2, {}, 0.5)
    assert loud != Told(name="a", count=2)


def test_messages_are_equal_if_their_fields_are():
    assert Told(name="a") == Told(count=1, name="a")
    assert Told(name="a") != Told(name="a", count=2)
    assert Told(name="a") != "a"


def test_messages_with_hashable_fields_are_hashable():
    class Key(Message):
        name: str

    assert {Key(name="a"): 1}[Key(name="a")] == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Told(name="a"))


@pytest.mark.parametrize(
    ("values", "error"),
    [({}, "Told needs the fields name"), ({"name": "a", "nam": 1}, "Told has no fields nam")],
)
def test_wrong_fields_are_refused(values: dict[str, Any], error):
    with pytest.raises(TypeError, match=error):
        Told(**values)
    with pytest.raises(TypeError):
        Told("a")  # type: ignore[call-arg]


def test_messages_cannot_be_changed():
    told = Told(name="a")
    with pytest.raises(FrozenInstanceError, match="'name'"):
        told.name = "b"
    with pytest.raises(FrozenInstanceError, match="'name'"):
        del told.name


def test_messages_can_be_pickled_matched_and_shown():
    told = pickle.loads(pickle.dumps(Told(name="a", count=2, labels={})))
    match told:
        case Told(name="a", count=count):
            assert count == 2
        case _:
            pytest.fail("it does not match")
    assert repr(told) == "Told(name='a', count=2, labels={})"
