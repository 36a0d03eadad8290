"""The page of the cluster (a placeholder until its owner writes it)."""

from __future__ import annotations

from syncline.dashboard import look


class ClusterPage:
    """Nodes, resources, actors and tasks."""

    def __init__(self, address: str | None, may_act: bool) -> None:
        look.note("The cluster is not shown yet.")

    def update(self) -> None:
        """Nothing to show."""
