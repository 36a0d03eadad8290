"""Frozen dataclasses whose methods are compiled on first use."""

import dataclasses
import inspect
import pickle
from dataclasses import field, fields, replace

import pytest

from syncline.records import dataclass
from syncline.suggestions import suggest_arguments


def made_by(decorate):
    @decorate(frozen=True, kw_only=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        hidden: int = field(default=0, repr=False)

        def __post_init__(self):
            if self.x < 0:
                raise ValueError(f"x={self.x}")

    @decorate(frozen=True, kw_only=True)
    class Named(Point):
        name: str = ""

        def __repr__(self):
            return self.name

    return Point, Named


@dataclass(frozen=True)
class Pair:
    left: int
    right: int = 0


POINT, NAMED = made_by(dataclass)
STANDARD, STANDARD_NAMED = made_by(dataclasses.dataclass)


@pytest.mark.parametrize("point", [POINT, STANDARD])
def test_instances_compare_and_show_their_fields(point):
    one = point(x=1, tags=["a"])
    assert one == point(x=1)
    assert one != point(x=2)
    assert one != (1, 2)
    assert hash(one) == hash(point(x=1))
    assert repr(one) == "made_by.<locals>.Point(x=1, y=2, tags=['a'])"


@pytest.mark.parametrize("point", [POINT, STANDARD])
def test_mistakes_raise_the_errors_of_the_standard_library(point):
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point(x=1, z=1)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        point()
    with pytest.raises(TypeError, match="positional"):
        point(1)
    with pytest.raises(ValueError, match="x=-1"):
        point(x=-1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point(x=1).x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point(x=1).x


@pytest.mark.parametrize("named", [NAMED, STANDARD_NAMED])
def test_subclasses_keep_their_own_methods_and_the_fields_of_the_base(named):
    one = named(x=1, name="first")
    assert repr(one) == "first"
    assert [each.name for each in fields(one)] == ["x", "y", "tags", "hidden", "name"]
    assert replace(one, y=5) == named(x=1, y=5, name="first")
    assert dataclasses.asdict(one) == {"x": 1, "y": 2, "tags": [], "hidden": 0, "name": "first"}


@pytest.mark.parametrize("decorate", [dataclass, dataclasses.dataclass])
def test_instances_without_eq_and_repr_are_compared_by_identity(decorate):
    @decorate(frozen=True, eq=False, repr=False)
    class Handle:
        x: int

    one = Handle(1)
    assert one.x == 1
    assert len({one, Handle(1)}) == 2
    assert one != Handle(1)
    assert repr(one) == object.__repr__(one)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2


@pytest.mark.parametrize("point", [POINT, STANDARD])
def test_signature_shows_the_fields(point):
    assert list(inspect.signature(point).parameters) == ["x", "y", "tags", "hidden"]
    assert inspect.signature(point).parameters["y"].default == 2


def test_another_decorator_may_wrap_the_constructor():
    @suggest_arguments
    @dataclass(frozen=True, kw_only=True)
    class Options:
        port: int = 0

    assert [Options(port=port).port for port in (1, 2)] == [1, 2]
    with pytest.raises(TypeError, match="Did you mean 'port'"):
        Options(prot=1)
    assert list(inspect.signature(Options).parameters) == ["port"]


def test_unpickled_instances_of_a_class_that_has_made_none_compare():
    @dataclass(frozen=True)
    class Unused:
        x: int

    one, two = object.__new__(Unused), object.__new__(Unused)
    for each in (one, two):
        each.__dict__["x"] = 1
    assert one == two
    assert len({one, two}) == 1
    assert repr(one).endswith("Unused(x=1)")


def test_pickled_instances_are_equal_and_positional_arguments_work():
    assert pickle.loads(pickle.dumps(Pair(1, right=3))) == Pair(1, 3)


def test_classes_that_are_not_frozen_are_those_of_the_standard_library():
    @dataclass(slots=True)
    class Counter:
        count: int = 0

    counter = Counter()
    counter.count = 3
    assert counter == Counter(3)
    assert not hasattr(counter, "__dict__")
