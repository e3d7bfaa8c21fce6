"""`camelid.ray.app`: a model as a Ray Serve application."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Ray is not installed to lint.)

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from camelid.errors import BackendError, RequestError
from camelid.loading.choose import stage_backend
from camelid.loading.options import LoadOptions

try:
    import ray.serve as serve
    from ray.serve.config import RequestRouterConfig
except ModuleNotFoundError as error:
    raise BackendError(f"replicas need {error.name}: pip install 'camelid[ray]'", backend="ray") from error

from camelid.ray.gate import Gate
from camelid.ray.replica import Replica, Setup
from camelid.ray.stages import Cut

ROUTER = "camelid.ray.router.AffinityRouter"
POLICY = "camelid.ray.scaling:replicas_for_places"
LOOK_BACK_S = 15.0  # over which Ray averages the places taken, which replicas report every 10 s
deploy: Any = cast("Any", serve).deployment  # Ray types it by its use as a decorator only
GATE_REQUESTS = 10_000  # that one gate holds open; replicas bound the work
HEALTH_S = 2.0
ROUTING: dict[str, Any] = {"request_router_class": ROUTER, "request_routing_stats_period_s": 1.0}


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Bounds of the number of replicas.

    Ray adds replicas after `upscale_delay_s` seconds in which more sequences ran or waited than all engines
    have rows (`parallel` each), and removes them after `downscale_delay_s` seconds in which fewer would do.
    Both count means of the latest 15 seconds, which the replicas report every 10 seconds.
    """

    min_replicas: int = 1
    max_replicas: int = 4
    upscale_delay_s: float = 5.0
    downscale_delay_s: float = 60.0


def app(
    model: str = "cria",
    *,
    replicas: int | Autoscaling = 1,
    max_queue: int | None = None,
    api_keys: Iterable[str] = (),
    hosts: Iterable[str] = ("localhost",),
    origins: Iterable[str] = (),
    drain_s: float = 30.0,
    actor_options: Mapping[str, Any] | None = None,
    gate_options: Mapping[str, Any] | None = None,
    stages: int = 1,
    stage_options: Mapping[str, Any] | None = None,
    placement: str = "SPREAD",
    **load_options: Any,
) -> Any:
    """A Ray Serve application with the routes of `camelid serve`: `serve.run(camelid.ray.app("m.gguf"))`.

    With `stages` over 1 every replica cuts the model into as many parts, for a model that one machine cannot
    hold. Each part is an actor of `stage_options` (by default `threads` processors) on a node that Ray
    chooses by `placement`, and reads the model's file there, at the same path.

    `max_queue` requests wait in a gate, by default 8 times `parallel`; beyond them the answer is 503. An
    ending replica has `drain_s` for its requests. `gate_options` place the gate: if its node fails, Ray's
    proxy cuts the streams through it.

    A stored response lives in the replica that made it, and requests that name it go there; after the end of
    that replica it is unknown (404). `/slots` is refused (501) where there may be more than one replica;
    `id_slot` chooses among the slots of the replica that the prompt leads to. Raises RequestError for an
    unknown load option.
    """
    options = LoadOptions.of(**load_options)
    options.check()
    if isinstance(replicas, int) and replicas < 1:
        raise RequestError(f"replicas is {replicas}, expected at least 1", field="replicas")
    cut = Cut(
        stages, stage_backend(options), {"num_cpus": options.threads or 1, **(stage_options or {})}, placement
    )
    cut.check()
    waiting = 8 * options.parallel if max_queue is None else max_queue
    setup = Setup(
        model, load_options, options.parallel, tuple(api_keys), frozenset(hosts), frozenset(origins), cut
    )
    cpus = 1 if stages > 1 else options.threads or 1
    actor = {"num_cpus": cpus, **(actor_options or {})}
    gate = deploy(
        Gate, name="gate", max_ongoing_requests=GATE_REQUESTS, ray_actor_options=dict(gate_options or {})
    )
    most = replicas if isinstance(replicas, int) else replicas.max_replicas
    return gate.bind(
        deployment(options, waiting, replicas, drain_s, actor, cut).bind(setup), has_slots=most == 1
    )


def deployment(
    options: LoadOptions,
    max_queue: int,
    replicas: int | Autoscaling,
    drain_s: float,
    actor: Mapping[str, Any],
    cut: Cut,
) -> Any:
    """The replicas. Each holds up to twice `parallel` requests, so that its engine never waits for one."""
    return deploy(
        Replica,
        name="replica",
        max_ongoing_requests=2 * options.parallel,
        max_queued_requests=max_queue,
        graceful_shutdown_timeout_s=drain_s,
        health_check_period_s=HEALTH_S,
        ray_actor_options=dict(actor),
        request_router_config=RequestRouterConfig(**ROUTING),
        **scaling(replicas, options.parallel),
        **cut.group(actor),
    )


def scaling(replicas: int | Autoscaling, parallel: int) -> dict[str, Any]:
    """Ray's words for a fixed or a moving number of replicas."""
    if isinstance(replicas, int):
        return {"num_replicas": replicas}
    return {
        "autoscaling_config": {
            **asdict(replicas),
            "look_back_period_s": LOOK_BACK_S,
            "policy": {"policy_function": POLICY},
            "target_ongoing_requests": parallel,
        }
    }
