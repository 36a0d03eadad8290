"""`ConsistentHashRouter`: sends all requests of a session to one replica.

D. Karger et al., "Consistent hashing and random trees", 1997: each replica has many points on a
ring of hashes, and a session belongs to the next point after its hash. Adding or removing a replica
goes moves only the sessions of its points. All processes compute the same ring.
"""

from __future__ import annotations

import bisect
import hashlib

from syncline.serve.context import ReplicaID
from syncline.serve.request_router import PendingRequest, RequestRouter, RunningReplica

DEFAULT_NUM_VIRTUAL_NODES = 100
DEFAULT_NUM_FALLBACK_REPLICAS = 2


class ConsistentHashRouter(RequestRouter):
    """Chooses replicas by `session_id`; requests without it are spread evenly."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they are
        self._points: list[tuple[int, ReplicaID]] = []
        self._num_virtual_nodes = DEFAULT_NUM_VIRTUAL_NODES
        self._num_fallback_replicas = DEFAULT_NUM_FALLBACK_REPLICAS

    def initialize_state(  # type: ignore[override]  # the options of this class
        self,
        *,
        num_virtual_nodes: int = DEFAULT_NUM_VIRTUAL_NODES,
        num_fallback_replicas: int = DEFAULT_NUM_FALLBACK_REPLICAS,
    ) -> None:
        """Take the options.

        Args:
            num_virtual_nodes: Points of each replica on the ring; more spread sessions evenly.
            num_fallback_replicas: Next replicas of the ring that may take a request when the first
                is full; 0: the request waits.

        Raises:
            ValueError: An option is out of range.
        """
        if not isinstance(num_virtual_nodes, int) or num_virtual_nodes < 1:
            raise ValueError(f"`num_virtual_nodes={num_virtual_nodes!r}`: give an integer above 0")
        if not isinstance(num_fallback_replicas, int) or num_fallback_replicas < 0:
            raise ValueError(
                f"`num_fallback_replicas={num_fallback_replicas!r}`: give an integer of 0 or more"
            )
        self._num_virtual_nodes = num_virtual_nodes
        self._num_fallback_replicas = num_fallback_replicas

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Compute the ring."""
        super().update_replicas(replicas)
        self._points = sorted(
            (
                (_hash(f"{id}:{i}"), id)
                for id in self._replica_id_set
                for i in range(self._num_virtual_nodes)
            ),
            key=lambda point: point[0],
        )

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the replica of the session, then the fallback replicas."""
        if pending_request is None:
            return [candidate_replicas]
        metadata = pending_request.metadata
        ids = self._owners(metadata.session_id or metadata.internal_request_id)
        return [[self._replicas[id]] for id in ids]

    def _owners(self, key: str) -> list[ReplicaID]:
        """Return the owner of a key and the fallback replicas after it."""
        most = min(1 + self._num_fallback_replicas, len(self._replica_id_set))
        start = bisect.bisect_right(self._points, _hash(key), key=lambda point: point[0])
        owners: dict[ReplicaID, None] = {}
        for offset in range(len(self._points)):
            if len(owners) == most:
                break
            owners[self._points[(start + offset) % len(self._points)][1]] = None
        return list(owners)


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
