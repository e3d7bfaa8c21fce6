"""The choice of a replica by a request's affinity, through Ray's request-router interface."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Ray is not installed to lint.)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from camelid.ray.affinity import Affinity, tag_of
from camelid.ray.heads import Heads

LEAST_MATCH = 0.1  # of a head; below it the emptiest replica is as good
SLACK = 4  # requests that the best match may have beyond the emptiest replica


class AffinityRouter(RequestRouter):
    """Prefers the replica that served most of the prompt's head; without a match, the emptiest.

    A request that names a stored response waits for the replica that holds it. If that replica has ended, any
    other one says so.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Begins with no heads; called once by Ray with the router's keyword arguments."""
        self._slack = int(kwargs.get("slack", SLACK))
        self._n_routed = 0
        self._served: dict[ReplicaID, Heads] = {}
        self._reported: dict[ReplicaID, Mapping[str, Any]] = {}

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas: the best match alone, then all others by their load.

        All replicas also for a request that waits for its home: it finds places for those behind it.
        """
        self._learn(candidate_replicas)
        if pending_request:
            pending_request.routing_context.should_backoff = True  # Ray asks full replicas again later
        head = affinity_argument(pending_request).head
        loads = [self._load(replica) for replica in candidate_replicas]
        matches = [self._served[replica.replica_id].match(head) for replica in candidate_replicas]
        order = ranked(matches, loads, len(head), self._slack, self._n_routed)
        return [[candidate_replicas[i]] for i in order]

    def _fulfill_next_pending_request(self, replica: RunningReplica, request_metadata: Any = None) -> None:  # noqa: ARG002 - Ray's signature
        """Gives a free replica to the longest waiting request that it may answer.

        Ray's FIFOMixin does so too, but knows no home. Under a full queue a prompt's prefix does not count.
        """
        homes = {tag(each) for each in self.curr_replicas.values()}
        for i, request in enumerate(self._pending_requests_to_fulfill):
            home = affinity_argument(request).home
            if not request.future.done() and (home == tag(replica) or home not in homes):
                del self._pending_requests_to_fulfill[i]
                self._cancel_routing_task_for_pending_request(request)
                self._record_queue_wait_time(request)
                self._remove_pending_request_from_indices(request)
                request.future.set_result(replica)
                return

    def on_request_routed(
        self,
        pending_request: PendingRequest,
        replica_id: ReplicaID,
        result: Any,  # noqa: ARG002 - Ray's signature
    ) -> None:
        """Remembers the head at its replica at once; the replica's own report comes later."""
        self._n_routed += 1  # so that equals take turns: a router hears of loads late
        self._served.setdefault(replica_id, Heads()).add(affinity_argument(pending_request).head)

    def _learn(self, replicas: Sequence[RunningReplica]) -> None:
        """Takes over the replicas' reports of other gates' requests, and forgets replicas that are gone."""
        self._served = {r.replica_id: self._served.get(r.replica_id) or Heads() for r in replicas}
        for replica in replicas:
            stats = replica.routing_stats
            if stats is not self._reported.get(replica.replica_id):
                self._served[replica.replica_id].add(reversed(stats.get("heads", ())))
        self._reported = {r.replica_id: r.routing_stats for r in replicas}

    def _load(self, replica: RunningReplica) -> int:
        """Requests under way at a replica, as far as this router knows."""
        return self.replica_queue_len_cache.get(replica.replica_id) or 0


def affinity_argument(request: PendingRequest | None) -> Affinity:
    """The affinity that the gate passes first; none for a request without one."""
    return request.args[0] if request and request.args else Affinity()


def tag(replica: RunningReplica) -> str:
    """The tag in the ids of the responses that a replica stores."""
    return tag_of(replica.replica_id.unique_id)


def ranked(
    matches: Sequence[int], loads: Sequence[int], n_blocks: int, slack: int, start: int = 0
) -> list[int]:
    """Indices of replicas, the preferred first; of equals the first from `start` on, in a circle.

    The best match comes first unless it is small, or its replica has over `slack` requests more than the
    emptiest.
    """
    n = len(loads)
    order = sorted(range(n), key=lambda i: (loads[i], -matches[i], (i - start) % n))
    best = max(order, key=lambda i: (matches[i], -loads[i]), default=0)
    is_match = n_blocks and matches[best] >= max(1, LEAST_MATCH * n_blocks)
    if is_match and loads[best] <= loads[order[0]] + slack:
        order.remove(best)
        order.insert(0, best)
    return order
