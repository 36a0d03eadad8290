"""`RoundRobinRouter`: cycles through the replicas."""

from __future__ import annotations

import random
from collections import defaultdict

from syncline.serve.request_router import (
    FIFOMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

_MOST_CURSORS = 4096


class RoundRobinRouter(FIFOMixin, MultiplexMixin, RequestRouter):
    """Sends each request to the next replica that is not full.

    Requests of a model cycle through the replicas that have loaded it.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they are
        self._start = random.randrange(1 << 16)
        self._cursors: defaultdict[str, int] = defaultdict(lambda: self._start)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return all candidates, each in a group of one, from the next one on."""
        model_id = ""
        candidates = candidate_replicas
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
            candidates = [each for each in candidate_replicas if each.replica_id in ids]
            model_id = pending_request.metadata.multiplexed_model_id
        if not candidates:
            return []
        if len(self._cursors) > _MOST_CURSORS:
            self._cursors.clear()
        first = self._cursors[model_id] % len(candidates)
        self._cursors[model_id] += 1
        return [[replica] for replica in candidates[first:] + candidates[:first]]
