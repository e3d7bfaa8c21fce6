"""Training plans: the gradient of a loss with respect to low-rank terms of a model's linear maps.

`differentiate` makes a plan of four parts: the base model's logits if a loss compares with them, the adapted
model's logits, the loss, and the backward ops from the last layer to the first. Between layers only the
stream is kept; what else the backward ops of a layer read is computed again right before them (Chen et al.,
arXiv 1604.06174). So the arena holds one row of the stream per layer and token, plus one layer:

    bytes <= rows * (4 * C * layers + one layer's values and gradients) + outputs * vocabulary * 4 * (1 or 2)

With `keeps` "products" the results of products stay instead, which saves a third of the arithmetic for some
ten times the memory per token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from camelid.errors import PlanError
from camelid.plan.op_rows_training import ANSWER, FISHER, HOW, LOSSES, MOMENTS, TRAINED
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Op, Plan, Stage, StateRef, StateSpec, View, whole
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.tidy import live_ops, only_for, renamed, without_copies
from camelid.plan.training_forward import Forward, Terms, add_forward, made_by, used_by, writes_of_kv
from camelid.plan.vjp import GRADIENT, VJP, Gradients

ACTS = Buffer("acts", "T", 1)  # input: 1 in rows in which the adapter acts, else 0
ANSWERS = Buffer("answers", "T", len(ANSWER))  # input: what the row shall predict, see the op `loss`
LOST = Buffer("losses", "O", len(LOSSES))  # output: the losses of each output row
HOW_ROW, NORM = Buffer("how", "T", len(HOW)), Buffer("norm", "T", 1)  # input and output of the update
BASE, AGAIN = "base.", "again."  # beginnings of buffer names: of the base model; computed a second time
KEEPS = ("layers", "products")
# Ops whose results are cheap to compute again from values that the backward ops read anyway.
CHEAP = frozenset({"norm", "glu", "shrink"})


def differentiate(plan: Plan, *, wrt: Terms, with_base: bool = False, keeps: str = "layers") -> Plan:
    """The training plan of a plan that samples, lowered with a cut before each layer and not fused.

    A run takes `acts` and `answers`, adds the gradient of the summed losses to the state `trained`, and makes
    `losses`. With `with_base` it also computes the base's logits, which the loss `kl` needs. Raises PlanError
    for an op without a gradient, by name.
    """
    if keeps not in KEEPS:
        raise PlanError(f"keeps is {keeps!r}, expected {' or '.join(KEEPS)}", op="")
    acts = {"T": whole(ACTS), "O": whole(replace(ACTS, name="acts.out", rows="O"))}
    answers = whole(replace(ANSWERS, name="answers.out", rows="O"))
    gathers = [_gather(acts["O"], acts["T"]), _gather(answers, whole(ANSWERS))]
    kv, segments = writes_of_kv(plan.ops), [stage.ops for stage in plan.stages]
    base = Forward(None, acts, kv, prefix=BASE)
    if with_base:
        add_forward(base, plan.ops)
    f = Forward(wrt, acts, kv)
    forward = [_added(f, ops) for ops in segments]
    logits = _logits(plan)
    start, gradient = _loss(f.value(logits), answers, base.value(logits) if with_base else None)
    backward = _backward(f, forward, gradient)
    ops = [*gathers, *base.ops, *f.ops, *start, *_with_recomputed(forward, backward, keeps)]
    ops = without_copies(live_ops(ops, {LOST}), {ACTS, ANSWERS, LOST})
    return _plan_of(plan, "train", ops, (ACTS, ANSWERS), wrt)


def measure_plan(plan: Plan, *, wrt: Terms) -> Plan:
    """The plan whose runs add to the state `fisher` of the base's weights with terms, by the loss of
    `answers` (elastic weight consolidation, Kirkpatrick et al., arXiv 1612.00796).

    Raises PlanError as `differentiate` does.
    """
    answers = whole(replace(ANSWERS, name="answers.out", rows="O"))
    f = Forward(None, {}, writes_of_kv(plan.ops))
    forward = [_added(f, stage.ops) for stage in plan.stages]
    start, gradient = _loss(f.value(_logits(plan)), answers, None)
    backward = _backward(f, forward, gradient, wrt.measured)
    ops = [_gather(answers, whole(ANSWERS)), *f.ops, *start, *_with_recomputed(forward, backward, "layers")]
    return _plan_of(plan, "measure", without_copies(live_ops(ops, {LOST}), {ANSWERS, LOST}), (ANSWERS,), wrt)


def _plan_of(plan: Plan, entry: str, ops: Sequence[Op], inputs: tuple[Buffer, ...], wrt: Terms) -> Plan:
    return replace(
        plan,
        key=replace(plan.key, entry=entry),
        stages=(Stage(entry, tuple(ops), inputs, (LOST,)),),
        states=training_states(plan.states, wrt),
    )


def update_plan(
    plan: Plan,
    *,
    anchors: Terms | None = None,
    first_beta: float = 0.9,
    second_beta: float = 0.999,
    eps: float = 1e-8,
) -> Plan:
    """The plan of one AdamW step over the states of a training plan. A run has one row: `how`.

    `anchors` are terms that are pulled to 0 by the state `fisher` first.
    """
    states = {name: StateRef(name) for name in (TRAINED, MOMENTS)}
    betas = {"first_beta": first_beta, "second_beta": second_beta, "eps": eps}
    op = make_op("adamw", {"norm": whole(NORM), "how": whole(HOW_ROW), **states}, betas)
    capacity = Capacity(rows=1, sequences=1, outputs=1, updates=0)
    return replace(
        plan,
        key=ProgramKey(entry="update", capacity=capacity),
        stages=(Stage("update", (*_anchors(anchors), op), (HOW_ROW,), (NORM,)),),
    )


def _anchors(terms: Terms | None) -> Iterator[Op]:
    places = terms.measured if terms else {}
    for name, (rows_at, cols_at) in places.items():
        assert terms is not None
        term = terms.of[name]
        sizes = {"at": term.at, "rank": term.rank, "n_in": term.n_in, "n_out": term.n_out}
        operands = {"how": whole(HOW_ROW), TRAINED: StateRef(TRAINED), FISHER: StateRef(FISHER)}
        yield make_op("anchor", operands, {**sizes, "rows_at": rows_at, "cols_at": cols_at})


def training_states(states: Iterable[StateSpec], wrt: Terms) -> tuple[StateSpec, ...]:
    """The ring of token ids, which the embedding reads; trained values, their moments, the Fisher sums."""
    rings = (state for state in states if state.kind == "ring")
    pairs = ((TRAINED, ("value", "gradient")), (MOMENTS, ("first", "second")))
    own = (StateSpec(name, "trained", (), tuple((t, wrt.n_values) for t in pair), 1) for name, pair in pairs)
    sums = ("rows", sum(t.n_out for t in wrt.of.values())), ("cols", sum(t.n_in for t in wrt.of.values()))
    return (*rings, *own, StateSpec(FISHER, "trained", (), sums, 1))


def _gather(y: View, x: View) -> Op:
    return make_op("gather_rows", {"y": y, "x": x}, {})


def _logits(plan: Plan) -> View:
    for op in plan.ops:
        if op.name == "sample":
            return op.view("logits")
    raise PlanError("the plan samples no token, so it has no logits to train; train a decoder", op="sample")


def _added(f: Forward, ops: Sequence[Op]) -> list[Op]:
    start = len(f.ops)
    add_forward(f, ops)
    return f.ops[start:]


def _loss(logits: View, answers: View, base: View | None) -> tuple[list[Op], dict[Buffer, Buffer]]:
    """The ops of the loss, and the gradient of the logits."""
    gradient = replace(logits.buffer, name=GRADIENT + logits.buffer.name)
    operands = {"losses": whole(LOST), "logits": whole(gradient), "answers": answers}
    ops = [make_op("copy_rows", {"y": whole(gradient), "x": logits}, {})]
    ops.append(make_op("loss", {**operands, **({"base": base} if base else {})}, {}))
    return ops, {logits.buffer: gradient}


def _backward(
    f: Forward,
    forward: Sequence[Sequence[Op]],
    gradient: dict[Buffer, Buffer],
    measured: Mapping[str, tuple[int, int]] | None = None,
) -> list[list[Op]]:
    """The backward ops of each segment that change a lasting state."""
    g = Gradients(f.before, measured or {}, held=gradient)
    ends: list[int] = []
    for ops in reversed(forward):
        for op in reversed(ops):
            VJP[op.name](op, g)
        ends.append(len(g.ops))
    live = {id(op) for op in live_ops(g.ops, ())}
    starts = [0, *ends[:-1]]
    parts = [g.ops[start:end] for start, end in zip(starts, ends, strict=True)]
    return [[op for op in part if id(op) in live] for part in reversed(parts)]


@dataclass(frozen=True, slots=True)
class _Segment:
    forward: Sequence[Op]
    backward: Sequence[Op]

    def needed(self) -> set[Buffer]:
        """Values of the segment's forward ops that its backward ops read."""
        made = {buffer for op in self.forward for buffer in made_by(op)}
        return made & {buffer for op in self.backward for buffer in used_by(op)}

    def kept(self, keeps: str) -> set[Buffer]:
        if keeps == "layers":
            return set()
        cheap = {buffer for op in self.forward if op.name in CHEAP for buffer in made_by(op)}
        return self.needed() - cheap

    def again(self, kept: Collection[Buffer]) -> list[Op]:
        """The backward ops, after the forward ops that compute what they need beside `kept` values."""
        ops = only_for(self.forward, self.needed() - {*kept}, {*kept})
        names = {b: replace(b, name=AGAIN + b.name) for op in ops for b in made_by(op) if b not in kept}
        return [renamed(op, names) for op in (*ops, *self.backward)]


def _with_recomputed(
    forward: Sequence[Sequence[Op]], backward: Sequence[Sequence[Op]], keeps: str
) -> list[Op]:
    """All backward ops in order. The last segment, the head, is not computed again."""
    segments = [_Segment(*both) for both in zip(forward, backward, strict=True)]
    *layers, head = segments
    ops = [*head.backward]
    for segment in reversed(layers):
        ops += segment.again(segment.kept(keeps))
    return ops
