"""A model as one backend runs it: limits, declared state and plans, computed once per load."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from camelid.backends.base import Capabilities, check_plan, reason_against
from camelid.engine.allocation import PAGED
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.pace import rows_ahead
from camelid.engine.programs import DECODE, ENCODE, INJECTED, MIXED, Limits, program_keys
from camelid.errors import RequestError
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.decoder import declare_states, lower
from camelid.model.features import MOST_FEATURE_ROWS, has_features
from camelid.model.spec_reader import at_context
from camelid.plan.fuse import fuse
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import ProgramKey
from camelid.plan.weights import Weight

DEFAULT_CONTEXT = 4096
# Compiled at load of a model that generates, the first token's program first; others for their requests.
LOADED_PROGRAMS = (MIXED, DECODE)
ENCODE_ROWS = 2048  # rows of a step of a model that encodes whole texts
TOKENS_A_TEXT = 16  # such a step has a place for each of so many rows


@dataclass(frozen=True)
class Deployment:
    """A model at its loaded context, the limits of its engine, and the capabilities of its backend.

    `depth` steps may be in flight; `kv_rows` None gives every sequence a full context. Plans are lowered on
    first use and kept.
    """

    model: Model
    limits: Limits
    capabilities: Capabilities
    kv_type: str = "f32"
    kv_rows: int | None = None
    depth: int = 1
    states: tuple[StateSpec, ...] = field(init=False)
    _plans: dict[ProgramKey, Plan] = field(init=False, default_factory=dict[ProgramKey, Plan])

    def __post_init__(self) -> None:
        # A frozen dataclass sets a derived field this way.
        states = declare_states(self.model.spec, self.kv_type, self.capabilities.page_rows)
        object.__setattr__(self, "states", states)

    @classmethod
    def of(cls, model: Model, options: LoadOptions, capabilities: Capabilities) -> Deployment:
        """The deployment of load options.

        Raises RequestError for a context or kv_type that the model does not allow.
        """
        context = check_context(options.context, model)
        chunk = options.chunk or capabilities.chunk
        rows = model.image_rows if model.spec.sees_images else 0
        limits = Limits(chunk, options.parallel, step_s=options.step_ms / 1e3, image_rows=rows or 0)
        limits = limits.at_context(context)
        if model.spec.embeds:
            limits = encode_limits(options, context)
        elif model.spec.encoder:
            limits = replace(limits, source_rows=context)
        elif has_features(model.spec):
            limits = replace(limits, feature_rows=min(context, MOST_FEATURE_ROWS))
        return cls(
            at_context(model, context),
            limits,
            capabilities,
            options.kv_type,
            options.kv_rows,
            options.max_in_flight or capabilities.max_in_flight,
        )

    @property
    def loaded(self) -> tuple[str, ...]:
        """The programs compiled at load, the first token's first."""
        if self.model.spec.embeds:
            return (ENCODE,)
        return (ENCODE, *LOADED_PROGRAMS) if self.model.spec.encoder else LOADED_PROGRAMS

    def plans(self, program: str) -> tuple[Plan, ...]:
        """The plans of a program, one per row bucket, the smallest first."""
        can, n_paged = self.capabilities, sum(state.kind in PAGED for state in self.states)
        keys = program_keys(program, self.limits, can.page_rows, n_paged=n_paged, row_buckets=can.row_buckets)
        return tuple(self._plan(key) for key in keys)

    def plan(self, program: str) -> Plan:
        """The plan of a program at its largest row bucket."""
        return self.plans(program)[-1]

    def _plan(self, key: ProgramKey) -> Plan:
        if key not in self._plans:
            can = self.capabilities
            self._plans[key] = fuse(self._lower(key), can.fused, most_bytes=can.most_bytes)
        return self._plans[key]

    def _lower(self, key: ProgramKey) -> Plan:
        return lower(self.model, key, self.states, cuts=self.capabilities.cuts)

    def lowered(self, program: str) -> Plan:
        """The plan of a program before all rewrites, at its largest row bucket."""
        return self._lower(self.plan(program).key)

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs whose plans have all weights: those compiled at load, and that of images."""
        return self.loaded if self.model.image_rows is None else (*self.loaded, INJECTED)

    def weights(self) -> list[Weight]:
        """Every weight of the plans of `programs`, once."""
        plans = [self.plan(program) for program in self.programs]
        return list({name: w for plan in plans for name, w in plan.weights().items()}.values())

    def kv_cache(self) -> KVCacheManager:
        """A new KV cache manager. Raises RequestError for a `kv_rows` below a page."""
        page_rows, n_rows = self.capabilities.page_rows, self.kv_rows
        if n_rows is not None and n_rows < page_rows:
            raise RequestError(
                f"kv_rows is {n_rows}, expected at least {page_rows}, the rows of a page", field="kv_rows"
            )
        return KVCacheManager(
            self.states,
            context=self.limits.context,
            n_sequences=self.limits.parallel,
            n_pages=n_rows and n_rows // page_rows,
            chunk=rows_ahead(self.limits.image_chunk, self.depth, self.capabilities.n_stages),
        )

    def check_plans(self) -> None:
        """Raises BackendError for a plan that the backend cannot run, before a weight is loaded."""
        for program in self.programs:
            check_plan(self.plan(program), self.capabilities)

    def reason_against(self) -> str:
        """The reason why `auto` must not choose this backend for the model; "" if there is none."""
        can = self.capabilities
        if can.is_software:
            return f"{can.device} is a software adapter (name the backend to use it all the same)"
        missing = {w.type for w in self.model.weights.values()} - can.weight_types
        if missing:
            return f"it has no kernel for {', '.join(sorted(missing))}"
        return reason_against(self.plan(self.loaded[0]), can)


def check_context(context: int | None, model: Model) -> int:
    """The context: as requested, else the model's own up to 4096, or the longest text of its training.

    Raises RequestError above the model's own.
    """
    most = model.spec.context_length
    if context is None:
        longest = model.spec.encoder.max_tokens if model.spec.encoder else 0
        return min(most, longest or DEFAULT_CONTEXT)
    if not 1 <= context <= most:
        raise RequestError(
            f"context is {context}, expected 1 to {most}, the length that this model was built for",
            field="context", n_tokens=context, context_length=most,
        )  # fmt: skip
    return context


def encode_limits(options: LoadOptions, context: int) -> Limits:
    """The limits of a model that encodes whole texts: a step has rows for the longest text, and places for
    many short ones.
    """
    rows = max(options.chunk or ENCODE_ROWS, context)
    return Limits(rows, max(options.parallel, rows // TOKENS_A_TEXT), context, options.step_ms / 1e3)
