"""Training of an adapter on any backend with the training ops: `reference` and `cpu`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from time import monotonic

from camelid.backends.base import Backend, PoolSize, Program, Sources
from camelid.errors import BackendError, OutOfMemoryError
from camelid.model.adapter import Adapter, LowRank
from camelid.model.arch import Model
from camelid.model.decoder import lower
from camelid.plan.differentiate import differentiate, measure_plan, update_plan
from camelid.plan.memory import plan_arena
from camelid.plan.op_rows_training import FISHER, LOSSES, TRAINED
from camelid.plan.plan import Plan
from camelid.plan.step import FROM_ID, Capacity, ProgramKey, Step, StepRow, StepSequence, encode_step
from camelid.plan.training_forward import Term, Terms, terms_of
from camelid.training.examples import KEEP, LEARN, SLOT, Example, Run, check_examples, check_kept, runs_of
from camelid.training.settings import FISHER_EXAMPLES, TrainingSettings

SEQUENCES = 64  # of a run
LEAST_OUTPUTS = 128  # places for answer tokens of a run; each has a row of logits
VALUE_BYTES = 16  # of a trained value: itself, its gradient and two moments, in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """What one step found: losses before it, by name and weighted; the gradient's length; rows computed."""

    step: int  # from 0
    n_steps: int
    losses: Mapping[str, float]
    gradient: float
    rows: int
    seconds: float  # since training began

    @property
    def loss(self) -> float:
        return sum(self.losses.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A trained adapter and its steps. `is_whole` is False if it was stopped or ran out of time."""

    adapter: Adapter
    steps: tuple[TrainingStep, ...]
    n_bytes: int  # beside the model's weights
    is_whole: bool


Report = Callable[[TrainingStep], bool]  # called after each step; True stops the training


def goes_on(_: TrainingStep) -> bool:
    """The report that never stops a training."""
    return False


@dataclass(frozen=True, slots=True)
class TrainingPlans:
    """The plans of a training: `learn`, `keep` with the base's logits (None: nothing to keep), `measure` of
    the Fisher information (None: no penalty), `update`."""

    terms: Terms
    learn: Plan
    keep: Plan | None
    measure: Plan | None
    update: Plan

    @classmethod
    def of(cls, model: Model, examples: Sequence[Example], settings: TrainingSettings) -> TrainingPlans:
        """The fastest plans that fit in `most_bytes`.

        Raises PlanError for a model with an op that has no gradient, OutOfMemoryError if no plan fits.
        """
        *better, last = settings.choices
        for keeps in better:
            plans = cls._of(model, examples, settings, keeps)
            if plans.n_bytes <= settings.most_bytes:
                return plans
        plans = cls._of(model, examples, settings, last)
        if plans.n_bytes <= settings.most_bytes:
            return plans
        raise OutOfMemoryError(
            f"training needs {plans.n_bytes:,} bytes beside the model's weights, but may take "
            f"{settings.most_bytes:,}; use fewer rows (now {plans.learn.key.capacity.rows}), a lower rank, "
            "or shorter examples",
            want_bytes=plans.n_bytes,
        )

    @classmethod
    def _of(
        cls, model: Model, examples: Sequence[Example], settings: TrainingSettings, keeps: str
    ) -> TrainingPlans:
        plan = lower(model, _key(examples, settings), cuts=tuple(range(1, len(model.spec.layers) + 1)))
        terms = terms_of(plan.ops, rank=settings.rank, scale=settings.scale, is_target=settings.is_target)
        learn = differentiate(plan, wrt=terms, keeps=keeps)
        has_base = any(example.role == KEEP for example in examples)
        keep = differentiate(plan, wrt=terms, with_base=True, keeps=keeps) if has_base else None
        measure = measure_plan(plan, wrt=terms) if settings.ewc else None
        first, second = settings.betas
        anchors = terms if measure else None
        update = update_plan(learn, anchors=anchors, first_beta=first, second_beta=second)
        return cls(terms, learn, keep, measure, update)

    @property
    def all(self) -> tuple[Plan, ...]:
        return tuple(self.named.values())

    @property
    def named(self) -> Mapping[str, Plan]:
        own = {"learn": self.learn, "keep": self.keep, "measure": self.measure, "update": self.update}
        return {name: plan for name, plan in own.items() if plan}

    @property
    def n_bytes(self) -> int:
        """Bytes of activations, trained values, gradient and moments."""
        return sum(plan_arena(plan).n_bytes for plan in self.all) + VALUE_BYTES * self.terms.n_values


def _key(examples: Sequence[Example], settings: TrainingSettings) -> ProgramKey:
    """Capacities for the longest example, and for `rows` of shorter ones."""
    rows = max(settings.rows, *(example.rows for example in examples))
    outputs = max(LEAST_OUTPUTS, *(len(example.answer) for example in examples))
    capacity = Capacity(rows=rows, sequences=SEQUENCES, outputs=min(rows, outputs), updates=0)
    return ProgramKey(entry="mixed", capacity=capacity)


@dataclass(slots=True)
class Trainer:
    """A training under way on a backend that has its weights and programs."""

    backend: Backend
    plans: TrainingPlans
    programs: Mapping[str, Program]
    settings: TrainingSettings
    deadline: float
    since: float
    anchor: float = 0.0
    steps: list[TrainingStep] = field(default_factory=list[TrainingStep])

    async def step(self, examples: Sequence[Example]) -> TrainingStep | None:
        """One step on these examples; None if the time ends before it is whole."""
        total: dict[str, float] = dict.fromkeys(LOSSES, 0.0)
        n_rows = 0
        for name, run in self._runs(examples):
            if monotonic() > self.deadline:
                return None
            for loss, value in (await self._run(name, run)).items():
                total[loss] += value
            n_rows += len(run.step.rows)
        norm = await self._update()
        n, seconds = self.settings.steps, monotonic() - self.since
        return TrainingStep(
            step=len(self.steps), n_steps=n, losses=total, gradient=norm, rows=n_rows, seconds=seconds
        )

    def _runs(self, examples: Sequence[Example]) -> Iterator[tuple[str, Run]]:
        """Runs with the name of their program."""
        for name in ("keep", "learn"):
            own = [example for example in examples if (example.role == KEEP) == (name == "keep")]
            for run in self._packed(own, self.settings.invocation):
                yield name, run

    def _packed(self, examples: Sequence[Example], invocation: Sequence[int]) -> Iterator[Run]:
        capacity, n_groups = self.plans.learn.key.capacity, len(self.plans.learn.states)
        return runs_of(
            examples, capacity, scales=self.settings.scales, invocation=invocation, n_groups=n_groups
        )

    async def measure(self, examples: Sequence[Example]) -> None:
        """Sums the Fisher information of the base's weights, each token of these answers weighing 1."""
        program = self.programs["measure"]
        each = [replace(example, role=LEARN, weight=1.0) for example in examples]
        for run in self._packed(each, ()):
            step, inputs = run.encoded(program.plan)
            await self.backend.read(self.backend.run(program, step, {"answers": inputs["answers"]}))
        mean = self._mean_fisher(await self.backend.read_state(FISHER, 0))
        self.anchor = self.settings.ewc * self.settings.scale**2 / mean if mean > 0.0 else 0.0

    def _mean_fisher(self, state: bytes) -> float:
        """The mean over the weights of the mean of their values."""
        terms = self.plans.terms
        sums = memoryview(state).cast("d" if len(state) == 8 * terms.n_sums else "f")
        means = [
            sum(sums[at : at + terms.of[name].n_out]) / (terms.of[name].n_out * terms.of[name].n_in)
            for name, (at, _) in terms.measured.items()
        ]
        return sum(means) / len(means)

    async def _run(self, name: str, run: Run) -> dict[str, float]:
        """Adds a run's gradient, and returns its losses."""
        program = self.programs[name]
        ticket = self.backend.run(program, *run.encoded(program.plan))
        await self.backend.read(ticket)
        values = _floats((await self.backend.read_boundary(ticket))["losses"], len(run.step.outputs))
        return {loss: sum(values[i :: len(LOSSES)]) for i, loss in enumerate(LOSSES)}

    async def _update(self) -> float:
        """One step of AdamW. Returns the gradient's length. Raises BackendError if it is not finite."""
        program, settings, n = self.programs["update"], self.settings, len(self.steps)
        corrections = (1.0 - beta ** (n + 1) for beta in settings.betas)
        how = array("f", [settings.rate_at(n), *corrections, settings.clip, settings.decay, self.anchor])
        ticket = self.backend.run(program, one_row(program.plan), {"how": how.tobytes()})
        await self.backend.read(ticket)
        norm = _floats((await self.backend.read_boundary(ticket))["norm"], 1)[0]
        if not norm < float("inf"):
            raise BackendError(
                f"the gradient of step {n} is {norm}; train with a lower rate, or check the examples",
                backend=self.backend.capabilities().name,
            )
        return norm


async def train(
    model: Model,
    sources: Sources,
    backend: Backend,
    *,
    examples: Sequence[Example],
    settings: TrainingSettings | None = None,
    name: str = "trained",
    report: Report = goes_on,
) -> Training:
    """Trains an adapter on an opened backend of its own: its state groups replace all others.

    `report` is called after each step, and stops the training by True; the adapter then is that of the last
    step. Equal arguments give equal adapters on one backend. Raises RequestError for examples or settings
    out of range, PlanError for a model that cannot be trained, OutOfMemoryError above `most_bytes`, and
    BackendError for a backend without the training ops or a gradient that is not finite.
    """
    settings = settings or TrainingSettings()
    settings.check()
    check_examples(examples, context=model.spec.context_length, vocab_size=model.spec.vocab_size)
    check_kept(examples, ewc=settings.ewc)
    plans = TrainingPlans.of(model, examples, settings)
    trainer = await started(sources, backend, plans=plans, settings=settings)
    if plans.measure:
        await trainer.measure([example for example in examples if example.role == KEEP][:FISHER_EXAMPLES])
    is_whole = True
    for chosen in _choices(examples, settings):
        found = await trainer.step(chosen)
        if found is None:
            is_whole = False
            break
        trainer.steps.append(found)
        if report(found):
            is_whole = len(trainer.steps) == settings.steps
            break
    adapter = adapter_of(await backend.read_state(TRAINED, 0), plans.terms, settings, name=name)
    return Training(adapter=adapter, steps=tuple(trainer.steps), n_bytes=plans.n_bytes, is_whole=is_whole)


async def started(
    sources: Sources, backend: Backend, *, plans: TrainingPlans, settings: TrainingSettings
) -> Trainer:
    """Loads weights, allocates and fills the trained state, and compiles the programs."""
    missing = {op.name for plan in plans.all for op in plan.ops} - backend.capabilities().ops
    if missing:
        raise BackendError(
            f"backend {backend.capabilities().name!r} cannot train: it has no kernel for "
            f"{', '.join(sorted(missing))}; train on cpu",
            backend=backend.capabilities().name,
        )
    since = monotonic()
    weights = {name: weight for plan in plans.all for name, weight in plan.weights().items()}
    used = {part.source for weight in weights.values() for part in weight.parts}
    await backend.load(list(weights.values()), {n: source for n, source in sources.items() if n in used})
    units = {s.name: PoolSize(units=SLOT + 1 if s.kind == "ring" else 1) for s in plans.learn.states}
    await backend.allocate(plans.learn.states, units)
    await backend.write_state(TRAINED, 0, first_values(plans.terms, settings.seed))
    programs = {name: await backend.compile(plan) for name, plan in plans.named.items()}
    deadline = float("inf") if settings.seconds is None else since + settings.seconds
    return Trainer(backend, plans, programs, settings, deadline, since)


def _choices(examples: Sequence[Example], settings: TrainingSettings) -> Iterator[list[Example]]:
    """The examples of each step."""
    rng = Random(settings.seed + 1)  # the seed itself draws the first values
    own = [example for example in examples if example.role != KEEP]
    kept = [example for example in examples if example.role == KEEP]
    for _ in range(settings.steps):
        some = rng.sample(own, settings.batch) if 0 < settings.batch < len(own) else own
        yield [*some, *rng.sample(kept, min(settings.keep_batch, len(kept)))]


def first_values(terms: Terms, seed: int) -> bytes:
    """Bytes of the state `trained`: A uniform in +-1 / sqrt(n_in) (He et al., arXiv 1502.01852, with PEFT's
    slope), B and the gradient 0."""
    rng, n = Random(seed), terms.n_values
    values = array("f", bytes(8 * n))
    for term in terms.of.values():
        bound = term.n_in**-0.5
        drawn = (bound * (2.0 * rng.random() - 1.0) for _ in range(term.rank * term.n_in))
        values[term.at : term.b_at] = array("f", drawn)
    return values.tobytes()


def adapter_of(state: bytes, terms: Terms, settings: TrainingSettings, *, name: str) -> Adapter:
    """The adapter of the state `trained`."""
    values = memoryview(state).cast("f")
    facts = {"rank": str(settings.rank), "alpha": f"{settings.alpha:g}", "seed": str(settings.seed)}
    found = {
        term.name.removesuffix(".weight"): _low_rank(term, values, terms.scale) for term in terms.of.values()
    }
    return Adapter(name=name, terms=found, invocation=settings.invocation, facts=facts)


def _low_rank(term: Term, values: memoryview[float], scale: float) -> LowRank:
    b = array("f", bytes(4 * term.rank * term.n_out))
    for r in range(term.rank):
        start = term.b_at + r * term.n_out
        b[r :: term.rank] = array("f", values[start : start + term.n_out])
    a = array("f", values[term.at : term.b_at])
    return LowRank(
        rank=term.rank, n_in=term.n_in, n_out=term.n_out, scale=scale, a=memoryview(a), b=memoryview(b)
    )


def _floats(data: bytes, n_rows: int) -> memoryview[float]:
    """Float32 values, or float64 ones of a backend that rounds nothing."""
    n_bytes = len(data) // max(n_rows, 1)
    return memoryview(data).cast("d" if n_bytes in (8, 8 * len(LOSSES)) else "f")


def one_row(plan: Plan) -> bytes:
    """The step of an update, whose op reads one row."""
    groups = ((SLOT, SLOT, 0),) * len(plan.states)
    step = Step(
        rows=[StepRow(source=FROM_ID, value=0, sequence=0, state_row=0, positions=(0,))],
        sequences=[StepSequence(first_row=0, rows=1, groups=groups)],
    )
    return encode_step(step, plan.layout)


def training_bytes(model: Model, examples: Sequence[Example], settings: TrainingSettings) -> int:
    """Bytes that `train` takes beside the model's weights. Raises as `train` does."""
    settings.check()
    check_examples(examples, context=model.spec.context_length, vocab_size=model.spec.vocab_size)
    return TrainingPlans.of(model, examples, settings).n_bytes
