"""The stages of one replica: actors that Ray places, watches and restarts, which speak to it over ZeroMQ."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Ray is not installed to lint.)

from __future__ import annotations

import asyncio
import os
import secrets
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, cast

import ray
from ray.exceptions import RayError
from ray.util import get_current_placement_group, get_node_ip_address
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from camelid.backends.base import Backend
from camelid.backends.registry import open_backend
from camelid.backends.remote.backend import stages_at
from camelid.backends.remote.server import StageServer
from camelid.errors import DeviceLostError, RequestError

PLACEMENTS = ("SPREAD", "STRICT_SPREAD", "PACK", "STRICT_PACK")
PLACED_S = 60.0  # until a stage that Ray places or restarts must answer
ASK_S, PAUSE_S = 5.0, 0.2  # of one question for its address, and between two
BUNDLE = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}  # an actor's options as resources
create: Any = cast("Any", ray).remote  # Ray types it by its use as a decorator only


@dataclass(frozen=True, slots=True)
class Cut:
    """A model cut into `n` stages, each an actor of these options, placed by `placement`.

    SPREAD puts each on a node of its own where there are enough nodes, STRICT_SPREAD always.
    """

    n: int = 1
    backend: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    placement: str = "SPREAD"

    def check(self) -> None:
        """Raises RequestError for a number or a placement that does not exist."""
        if self.n < 1:
            raise RequestError(f"stages is {self.n}, expected at least 1", field="stages")
        if self.placement not in PLACEMENTS:
            raise RequestError(
                f"placement is {self.placement!r}, expected one of {', '.join(PLACEMENTS)}", field="placement"
            )

    def group(self, replica: Mapping[str, Any]) -> dict[str, Any]:
        """Ray's words for places of a replica and its stages; none for a whole model."""
        if self.n == 1:
            return {}
        bundles = [bundle(replica), *[bundle(self.options)] * self.n]
        return {"placement_group_bundles": bundles, "placement_group_strategy": self.placement}


def bundle(options: Mapping[str, Any]) -> dict[str, float]:
    """The resources that an actor of these options holds."""
    own = {BUNDLE[name]: float(options[name]) for name in BUNDLE if options.get(name)}
    return own | {name: float(n) for name, n in (options.get("resources") or {}).items()}


class Stage:
    """One stage: a server in an actor. A server that fails ends its process, so that Ray starts another."""

    def __init__(self, backend: str, token: str) -> None:
        address = f"tcp://{get_node_ip_address()}:*"
        self._server = StageServer(partial(open_backend, backend), token, address)
        Thread(target=self._serve, name="camelid stage", daemon=True).start()

    def _serve(self) -> None:
        try:
            self._server.serve()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def address(self) -> str:
        """Address of the server: another port after each restart."""
        return self._server.address

    def node(self) -> str:
        """The node where it runs."""
        return ray.get_runtime_context().get_node_id()


class Stages:
    """The stages of this replica, in its placement group. The actors end with the process that made them."""

    def __init__(self, cut: Cut) -> None:
        self._token = secrets.token_urlsafe(32)
        group = get_current_placement_group()
        self._actors = [self._actor(cut, group, i) for i in range(cut.n)]

    def _actor(self, cut: Cut, group: Any, i: int) -> Any:
        """The actor of a stage, in the group's bundle behind the replica's."""
        options: dict[str, Any] = {"max_restarts": -1, **cut.options}
        if group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=i + 1
            )
        return create(Stage).options(**options).remote(cut.backend, self._token)

    async def backends(self) -> Sequence[Backend]:
        """The backends of the stages where they run now. Raises DeviceLostError if one does not come back."""
        return stages_at(await asyncio.gather(*map(self._address, range(len(self._actors)))), self._token)

    async def _address(self, i: int) -> str:
        until = time.monotonic() + PLACED_S
        while True:
            try:
                return await asyncio.wait_for(_text(self._actors[i].address.remote()), ASK_S)
            except (RayError, TimeoutError) as error:
                if time.monotonic() > until:
                    raise DeviceLostError(
                        f"Ray has not started stage {i + 1} of {len(self._actors)} in {PLACED_S:g} s "
                        f"({type(error).__name__}); are its resources free on a living node?",
                        backend="remote", reason="no actor",
                    ) from error  # fmt: skip
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Ends the actors."""
        for actor in self._actors:
            with suppress(RayError):
                ray.kill(actor)


async def _text(reply: Any) -> str:
    return str(await reply)
