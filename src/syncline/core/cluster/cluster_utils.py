"""`Cluster`: several Ray nodes on this machine, for tests of programs; `ray.cluster_utils`."""

from __future__ import annotations

from typing import Any, NoReturn

from ray import cluster_utils

from syncline.core.lifecycle import InitContext, init, is_program, shutdown


class Cluster(cluster_utils.Cluster):  # type: ignore[misc]  # Ray ships no type hints for it
    """Nodes of one cluster, each with its own processes.

    `add_node(num_cpus=2)` starts a node and `remove_node(node)` ends it; `address` is for `init`.
    `connect()` starts syncline in this program with the cluster, and `shutdown()` ends both.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: dict[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        """`head_node_args` are arguments of the first `add_node`."""
        super().__init__(
            initialize_head=initialize_head,
            connect=False,
            head_node_args=head_node_args,
            shutdown_at_exit=shutdown_at_exit,
        )
        if connect:
            self.connect()

    def connect(self, namespace: str | None = None) -> InitContext:
        """Start syncline in this program with the cluster; RuntimeError if already running."""
        context = init(self.address, namespace=namespace)
        self.connected = True
        return context

    def shutdown(self) -> None:
        """End syncline in this program, if `connect` has started it, and all nodes."""
        if self.connected and is_program():
            shutdown()
        self.connected = False
        super().shutdown()


class AutoscalingCluster:
    """Not supported; use `Cluster`."""

    def __init__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            "`AutoscalingCluster` simulates a cloud for tests of Ray's autoscaler, which is not "
            "part of syncline: use `Cluster` with `add_node` and `remove_node`, or start a real "
            "cluster with `syncline up`"
        )
