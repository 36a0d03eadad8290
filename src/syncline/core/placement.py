"""Placement groups and scheduling strategies, with Ray's signatures.

`util.placement_group` creates and removes groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, SupportsFloat, get_args

from syncline.core import refs
from syncline.core.refs import Id, ObjectRef
from syncline.records import dataclass
from syncline.suggestions import check_resource_names

PlacementStrategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
PLACEMENT_STRATEGIES: tuple[str, ...] = get_args(PlacementStrategy)


class PlacementGroup:
    """Resources that are reserved together, in numbered bundles.

    Picklable. The group exists until it is removed.
    """

    def __init__(self, id: int, bundle_specs: Sequence[Mapping[str, float]]) -> None:
        self.id = Id(id)
        self.bundle_specs: list[dict[str, float]] = [dict(bundle) for bundle in bundle_specs]

    @staticmethod
    def empty() -> PlacementGroup:
        """Return the null group."""
        return PlacementGroup(0, [])

    @property
    def is_empty(self) -> bool:
        """True for the null group."""
        return self.id.is_nil()

    @property
    def bundle_count(self) -> int:
        """Number of bundles."""
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef[PlacementGroup]:
        """Return a reference whose value is this group, once all bundles are reserved."""
        return refs.engine_of_refs().placement_group_ready(self.id)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Wait until all bundles are reserved; return False on timeout."""
        ready, _ = refs.engine_of_refs().wait(
            [self.ready()], num_returns=1, timeout_s=timeout_seconds, fetch_local=False
        )
        return bool(ready)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()}, {self.bundle_specs})"

    def __reduce__(self) -> tuple[object, ...]:
        return (PlacementGroup, (int(self.id), self.bundle_specs))


def check_bundles(bundles: Sequence[Mapping[str, float]], strategy: str) -> None:
    """Raise ValueError for a placement group that is invalid on any machine."""
    if strategy not in PLACEMENT_STRATEGIES:
        raise ValueError(
            f"the strategy {strategy!r} of a placement group is unknown: "
            f"use one of {', '.join(PLACEMENT_STRATEGIES)}"
        )
    if not bundles:
        raise ValueError(
            "a placement group without bundles reserves nothing: "
            "give at least one bundle, such as {'CPU': 1}"
        )
    for bundle in bundles:
        for name, amount in bundle.items():
            if not isinstance(name, str) or not isinstance(amount, SupportsFloat):
                raise ValueError(
                    f"the bundle {dict(bundle)} has {name!r}: {amount!r}, but resources are "
                    f"amounts by name: write for example {{'CPU': 1}}"
                )
        check_resource_names("bundles", bundle)
        if not any(bundle.values()):
            raise ValueError(
                f"the bundle {dict(bundle)} reserves nothing: "
                f"give at least one amount above 0, or leave the bundle out"
            )
        if min(bundle.values()) < 0:
            raise ValueError(f"the bundle {dict(bundle)} has a negative amount: give 0 or more")


@dataclass(frozen=True)
class PlacementGroupSchedulingStrategy:
    """Run inside a placement group."""

    placement_group: PlacementGroup
    """The group; Ray's text "default" is the same as no strategy."""
    placement_group_bundle_index: int = -1
    """Index of the bundle; -1: any that has room."""
    placement_group_capture_child_tasks: bool | None = None
    """True if tasks submitted by the task also run inside the group by default."""

    def __post_init__(self) -> None:
        group, index = self.placement_group, self.placement_group_bundle_index
        if self.is_default:
            return
        if not isinstance(group, PlacementGroup):
            raise TypeError(
                f"`placement_group` is a {type(group).__name__}, not a placement group: "
                f"pass the result of `util.placement_group()`"
            )
        if not -1 <= index < max(group.bundle_count, 1):
            raise ValueError(
                f"`placement_group_bundle_index={index}` is out of range: the group has "
                f"{group.bundle_count} bundles; use 0 to {group.bundle_count - 1}, or -1 for any"
            )

    @property
    def is_default(self) -> bool:
        """True if the strategy is that of tasks without one."""
        group: object = self.placement_group
        return group == "default"


@dataclass(frozen=True)
class NodeAffinitySchedulingStrategy:
    """Run on one node."""

    node_id: str | Id
    """The node id, as in `nodes()` and `get_runtime_context().get_node_id()`."""
    soft: bool
    """True if another node may be used when this one is gone or full."""
    _spill_on_unavailable: bool = False
    _fail_on_unavailable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.node_id, str):
            object.__setattr__(self, "node_id", self.node_id.hex())


@dataclass(frozen=True)
class _LabelCondition:
    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        for value in values:
            if not isinstance(value, str):
                raise TypeError(
                    f"{type(self).__name__}({value!r}): labels are compared with text, "
                    f"not {type(value).__name__}"
                )
        object.__setattr__(self, "values", values)


class In(_LabelCondition):
    """The label has one of these values."""


class NotIn(_LabelCondition):
    """The label has none of these values."""


@dataclass(frozen=True)
class Exists:
    """The label exists."""


@dataclass(frozen=True)
class DoesNotExist:
    """The label does not exist."""


LabelCondition = In | NotIn | Exists | DoesNotExist


@dataclass(frozen=True)
class NodeLabelSchedulingStrategy:
    """Run on a node with certain labels."""

    hard: Mapping[str, LabelCondition] = field(default_factory=dict)
    """Conditions that the node must meet, by label."""
    soft: Mapping[str, LabelCondition] = field(default_factory=dict)
    """Conditions that the node should meet, by label."""

    def __post_init__(self) -> None:
        for name in ("hard", "soft"):
            conditions = getattr(self, name) or {}
            object.__setattr__(self, name, conditions)
            for label, condition in conditions.items():
                if not isinstance(condition, (In, NotIn, Exists, DoesNotExist)):
                    raise TypeError(
                        f"`{name}[{label!r}]={condition!r}` is not a condition: "
                        f"use In, NotIn, Exists or DoesNotExist"
                    )


SchedulingStrategy = (
    Literal["DEFAULT", "SPREAD"]
    | PlacementGroupSchedulingStrategy
    | NodeAffinitySchedulingStrategy
    | NodeLabelSchedulingStrategy
)
