"""Resources of trials: `placement_groups`."""

from syncline.tune.execution.placement_groups import PlacementGroupFactory

__all__ = ["PlacementGroupFactory"]
