"""What trials hold while they run."""

from syncline.tune.execution.placement_groups import PlacementGroupFactory

__all__ = ["PlacementGroupFactory"]
