"""Options of gangs: groups of replicas that start and stop together.

A gang reserves the resources of all of its replicas in one placement group, so it starts as a whole
or not at all. The number of replicas is always a multiple of `gang_size`.
"""

from __future__ import annotations

from enum import Enum

from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.serve.autoscaling_config import AutoscalingConfig
from syncline.suggestions import suggest_arguments

AUTO_MAX_REPLICAS = 100
"""`max_replicas` of `num_replicas="auto"`."""


class GangPlacementStrategy(str, Enum):
    """Placement of the replicas of a gang."""

    PACK = "PACK"
    """On as few nodes as possible."""
    SPREAD = "SPREAD"
    """On as many nodes as possible."""


class GangRuntimeFailurePolicy(str, Enum):
    """Reaction to the death of a replica of a gang."""

    RESTART_GANG = "RESTART_GANG"
    """End the other replicas of the gang, and start another gang."""
    RESTART_REPLICA = "RESTART_REPLICA"
    """Not implemented, as in Ray."""


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class GangSchedulingConfig:
    """Groups of replicas that start, stop and fail together, as those of one sharded model."""

    gang_size: int
    """Replicas of a gang; `num_replicas` is a multiple of it."""
    gang_placement_strategy: GangPlacementStrategy = GangPlacementStrategy.PACK
    """"PACK" or "SPREAD"."""
    runtime_failure_policy: GangRuntimeFailurePolicy = GangRuntimeFailurePolicy.RESTART_GANG
    """"RESTART_GANG"."""

    def __post_init__(self) -> None:
        check.integer("gang_size", self.gang_size, least=1)
        for name, enum in (
            ("gang_placement_strategy", GangPlacementStrategy),
            ("runtime_failure_policy", GangRuntimeFailurePolicy),
        ):
            object.__setattr__(self, name, check.member(name, getattr(self, name), enum))
        if self.runtime_failure_policy is GangRuntimeFailurePolicy.RESTART_REPLICA:
            raise NotImplementedError(
                "`runtime_failure_policy='RESTART_REPLICA'` is not implemented: use 'RESTART_GANG'"
            )

    def check_replicas(self, num_replicas: int) -> None:
        """Raise ValueError unless the number of replicas is a multiple of the gang size."""
        self._check_multiple("num_replicas", num_replicas)

    def check_bounds(self, scaling: AutoscalingConfig) -> None:
        """Raise ValueError unless the bounds of autoscaling are multiples of the gang size.

        The default `min_replicas=1` and the `max_replicas=100` of `num_replicas="auto"` are
        rounded to multiples instead.
        """
        if scaling.min_replicas > 1:
            self._check_multiple("autoscaling_config.min_replicas", scaling.min_replicas)
        if scaling.initial_replicas is not None:
            self._check_multiple("autoscaling_config.initial_replicas", scaling.initial_replicas)
        most = scaling.max_replicas
        if most != AUTO_MAX_REPLICAS or most < self.gang_size:
            self._check_multiple("autoscaling_config.max_replicas", most)

    def _check_multiple(self, name: str, count: int) -> None:
        size = self.gang_size
        if count % size:
            above = count + size - count % size
            below = f"{count - count % size} or " if count > size else ""
            raise ValueError(
                f"`{name}={count}` is not a multiple of `gang_size={size}`: give {below}{above}"
            )


def whole_gangs(count: int, size: int) -> int:
    """Return the least multiple of `size` that is at least `count`."""
    return -(-count // size) * size
