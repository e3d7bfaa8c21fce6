"""The reference backend with Metal's kernels on the rig in place of its ops, for cases and models.

Buffers have rows up to the program's capacity, the unused ones NaN, as on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from tests.metal.rig import Rig

from camelid.backends.base import Candidates
from camelid.backends.common.codecs.activations import Stored
from camelid.backends.reference.backend import KERNELS, ReferenceBackend
from camelid.backends.reference.frame import Frame
from camelid.plan.plan import Op, Plan, StateRef
from camelid.plan.step import CANDIDATES, COUNTS, FROM_RING, STATUS, decode_step
from camelid.plan.weights import Weight
from camelid_native.mlx.metal import attention as attending
from camelid_native.mlx.metal import experts as expert_products
from camelid_native.mlx.metal import launch, products, rows, sampling

COUNT_AT = {"T": COUNTS.index("rows"), "O": COUNTS.index("outputs"), "S": COUNTS.index("sequences")}


@dataclass(frozen=True)
class Run:
    """An op of a step, with its operands as arrays of MLX."""

    op: Op
    frame: Frame
    words: mx.array  # of the step, u32

    def rows(self, role: str) -> int:
        """The capacity of a view's rows."""
        capacity = self.frame.plan.key.capacity
        return {"T": capacity.rows, "O": capacity.outputs, "S": capacity.sequences}[self.op.view(role).rows]

    def counted(self, role: str) -> dict[str, Any]:
        """Arguments that say how many rows of a view live."""
        return {"count": self.words, "count_at": COUNT_AT[self.op.view(role).rows]}

    def view(self, role: str) -> mx.array:  # f32 [rows, cols]
        values = self.frame.read(self.op.view(role)).astype(np.float32)
        whole = np.full((self.rows(role), values.shape[1]), np.nan, np.float32)
        whole[: len(values)] = values
        return mx.array(whole)

    def write(self, role: str, array: mx.array) -> None:
        """Stores the live rows; the others must be zeros."""
        values = np.array(array)
        n = len(self.frame.step.outputs if self.op.view(role).rows == "O" else self.frame.step.rows)
        assert not values[n:].any()
        self.frame.write(self.op.view(role), values[:n])

    def blocks(self, role: str) -> mx.array:
        """The bytes of a weight as its file has them."""
        weight = self.op.weight(role)
        return mx.array(np.frombuffer(_raw(self.frame, weight), np.uint8))

    def table(self, role: str) -> mx.array:
        return mx.array(self.frame.store.matrix(self.op.weight(role)).astype(np.float32))

    def vector(self, role: str) -> mx.array | None:
        """A small weight as float32, None if the op has none."""
        return self.table(role) if self.op.has(role) else None


def _raw(frame: Frame, weight: Weight) -> bytes:
    read = frame.store._read  # pyright: ignore[reportPrivateUsage]
    assert not weight.load_ops
    return b"".join(read(part, 0, part.n_bytes).tobytes() for part in weight.parts)


MetalOp = Callable[[Run], None]


def linear(run: Run) -> None:
    """All products of one matrix."""
    op, weight = run.op, run.op.weight("weight")
    is_added = op.name.startswith("linear_add")
    y = products.linear(
        run.view("x"),
        run.blocks("weight"),
        weight_type=weight.type,
        outputs=op.view("y").cols,
        cols=weight.cols,
        **run.counted("y"),
        bias=run.vector("bias") if op.has("bias") else None,
        act=op.word("act") if op.name.endswith("glu") else "",
        added=run.view("y") if is_added else None,
        scale=op.number("scale") if is_added else 1.0,
        norm_eps=op.number("eps") if op.name.startswith("norm_") else None,
    )
    run.write("y", y)


def embed(run: Run) -> None:
    """Looks rows up; the reference has found the ids, and writes the ring."""
    KERNELS["embed"](run.op, run.frame)
    weight, ids = run.op.weight("weight"), np.full(run.rows("y"), 2**31, np.uint32)
    ids[: len(run.frame.step.rows)] = token_ids(run)
    how = {"weight_type": weight.type, "cols": weight.cols, "scale": run.op.number("scale")}
    run.write("y", products.embed(mx.array(ids), run.blocks("weight"), **how, **run.counted("y")))


def token_ids(run: Run) -> list[int]:
    """The token id of each row, as `op_embed` of the reference finds it."""
    ring = run.frame.state.tensor(run.op.state("tokens"), "id")
    slots = [run.frame.sequence_words(row, run.op.state("tokens").group)[0] for row in run.frame.step.rows]
    found = zip(run.frame.step.rows, slots, strict=True)
    return [
        int(ring[slot, row.state_row % ring.shape[1], 0]) if row.source == FROM_RING else row.value
        for row, slot in found
    ]


def attention(run: Run) -> None:
    op = run.op
    n_heads = op.integer("n_heads")
    heads = attending.Heads(
        n_heads=n_heads,
        n_kv_heads=op.integer("n_kv_heads"),
        v_dim=op.view("y").cols // n_heads,
        scale=op.number("scale"),
        is_held=op.word("mask") == "held",
        window=op.integer("window"),
        softcap=op.number("softcap"),
    )
    more = {name: run.vector(name) for name in ("sinks", "bias")}
    tail = pools(run, "tail") if op.has("tail") else None
    own = pools(run, "state")
    run.write(
        "y",
        attending.attention(run.view("q"), own, run.words, form_of(run), heads, tail=tail, **more),
    )


def pools(run: Run, role: str) -> attending.Pools:
    """The pools of a state group of the op."""
    state, plan = run.op.state(role), run.frame.plan
    spec = plan.state(state.group)
    arrays = {name: mx.array(run.frame.state.tensor(state, name)) for name, _ in spec.tensors}
    flat = {name: array.reshape(-1, array.shape[-1]) for name, array in arrays.items()}
    return attending.Pools(
        kv_type=spec.kv_type,
        group=plan.group(state.group),
        keys=flat["k"],
        values=flat.get("v"),
        tables=mx.array(run.frame.state.tables[state.group]),
        page_rows=spec.unit_rows,
    )


def experts(run: Run) -> None:
    op = run.op
    up, act = (stack(run, "up_"), op.word("act")) if op.has("up_weight") else (None, "")
    name = "x" if op.name == "linear_experts_sum" else "y"
    how = run.counted(name)
    y = expert_products.experts(run.view("x"), run.view("ids"), stack(run, ""), up=up, act=act, **how)
    run.write("y", expert_products.combine(y, run.view("probs"), **how) if name == "x" else y)


def combine(run: Run) -> None:
    run.write("y", expert_products.combine(run.view("x"), run.view("probs"), **run.counted("y")))


def router(run: Run) -> None:
    op = run.op
    choice = expert_products.Choice(
        gate=op.word("gate"),
        used=op.view("ids").cols,
        normalize=bool(op.integer("normalize")),
        scale=op.number("scale"),
        n_groups=op.integer("n_groups"),
        n_groups_used=op.integer("n_groups_used"),
    )
    how = {"bias": run.vector("bias"), **run.counted("ids")}
    ids, probs = expert_products.router(run.view("logits"), choice, **how)
    run.write("ids", ids)
    run.write("probs", probs)


def linear_heads(run: Run) -> None:
    run.write("y", expert_products.heads(run.view("x"), stack(run, ""), **run.counted("y")))


def stack(run: Run, half: str) -> expert_products.Stack:
    weight, bias = run.op.weight(f"{half}weight"), f"{half}bias"
    n_experts, outputs, cols = weight.shape
    sizes = {"experts": n_experts, "outputs": outputs, "cols": cols}
    own = run.vector(bias)
    return expert_products.Stack(
        blocks=run.blocks(f"{half}weight"), weight_type=weight.type, **sizes, bias=own
    )


def sample(run: Run) -> None:
    """The reference writes the ring and keeps logits; ids and numbers are Metal's."""
    op, plan, state = run.op, run.frame.plan, run.op.state("tokens")
    ring = run.frame.state.tensor(state, "id")
    before = mx.array(ring[..., 0].copy())
    drawn = sampling.sample(
        run.view("logits"), run.words, before, form_of(run), group=plan.group(state.group)
    )
    KERNELS[op.name](op, run.frame)
    rows = np.array(drawn)
    n = len(run.frame.result)
    assert not rows[n:].any()
    for number, ((token_id, status, *_), floats) in enumerate(
        zip(rows[:n], rows[:n].view(np.float32), strict=True)
    ):
        own = {"token_id": int(token_id), "status": STATUS[status]}
        numbers = {"logit": float(floats[2]), "log_sum_exp": float(floats[3])}
        run.frame.result[number] = run.frame.result[number]._replace(**own, **numbers)


def candidates(run: Run) -> None:
    rows = np.array(sampling.candidates(run.view("logits"), run.words, form_of(run)))
    n, most = len(run.frame.result), min(CANDIDATES, run.op.view("logits").cols)
    assert not rows[n:].any()
    for number, words in enumerate(rows[:n]):
        mean, variance = words.view(np.float32)[2 * CANDIDATES :]
        found = Candidates(
            ids=memoryview(words[:most].tobytes()).cast("I"),
            logits=memoryview(words[CANDIDATES:][:most].tobytes()).cast("f"),
            mean=float(mean),
            variance=float(variance),
        )
        run.frame.result[number] = run.frame.result[number]._replace(candidates=found)


def form_of(run: Run) -> attending.StepForm:
    layout = run.frame.plan.layout
    return attending.StepForm(row_words=layout.row_words, sequence_words=layout.sequence_words)


def linear_add_norm(run: Run) -> None:
    weight, gain = run.op.weight("weight"), run.vector("gain")
    assert gain is not None
    sizes: dict[str, Any] = {"weight_type": weight.type, "outputs": weight.rows, "cols": weight.cols}
    more = {"added": run.view("y"), "gain": gain, "scale": run.op.number("scale")}
    how: dict[str, Any] = {**sizes, **more, **run.counted("y"), "bias": run.vector("bias")}
    y, z = products.linear_add_norm(run.view("x"), run.blocks("weight"), **how)
    run.write("y", y)
    run.write("z", z)


def norm(run: Run) -> None:
    op = run.op
    how: dict[str, Any] = {"eps": op.number("eps"), **run.counted("x")}
    if op.name == "add_norm":
        gain = run.vector("gain")
        assert gain is not None
        y, x = rows.add_norm(run.view("x"), run.view("r"), gain, scale=op.number("scale"), **how)
        run.write("x", x)
    else:
        weights = {name: run.vector(name) for name in ("gain", "bias")}
        kind = {"kind": op.word("kind"), "size": op.integer("size")}
        y = rows.norm(run.view("x"), **weights, **kind, **how)
    run.write("y", y)


def turn(run: Run) -> None:
    """Rotations of heads, after their norms if the op has gains."""
    op = run.op
    cols: dict[str, Any] = {name: op.integer(name) for name in ("k_cols", "v_cols") if op.name != "rope"}
    tables: dict[str, Any] = {name: run.table(name) for name in ("fine", "coarse")}
    sizes: dict[str, Any] = {name: op.integer(name) for name in ("head_dim", "dim", "offset")}
    heads = rows.Turn(style=op.word("style"), **sizes, **cols, **tables)
    gains = {name: run.vector(name) for name in ("q_gain", "k_gain")} if op.name != "rope" else {}
    eps = op.number("eps") if gains else 0.0
    run.write("x", rows.norm_rope(run.view("x"), run.words, form_of(run), heads, eps=eps, **gains))


def kv_write(run: Run) -> None:
    """Rows of blocks are Metal's; the reference puts those of floats."""
    op, state = run.op, run.op.state("state")
    KERNELS["kv_write"](op, run.frame)
    spec = run.frame.plan.state(state.group)
    for name in ("k", "v") if spec.kv_type in BLOCK_TYPES else ():
        stored = np.array(rows.blocks(run.view(name), spec.kv_type, **run.counted(name)))
        put_rows(run.frame, state, name, stored)


def put_rows(frame: Frame, state: StateRef, name: str, stored: npt.NDArray[np.uint8]) -> None:
    pool, tables = frame.state.tensor(state, name), frame.state.tables[state.group]
    for row, data in zip(frame.step.rows, stored, strict=False):
        units = tables[frame.sequence_words(row, state.group)[0]]
        pool[units[row.state_row // pool.shape[1]], row.state_row % pool.shape[1]] = data


BLOCK_TYPES = ("q8_0", "q4_0")
METAL: Mapping[str, MetalOp] = {
    **dict.fromkeys(("norm", "add_norm"), norm),
    **dict.fromkeys(("rope", "norm_rope"), turn),
    "kv_write": kv_write,
    "linear_add_norm": linear_add_norm,
    "sample": sample,
    "candidates": candidates,
    **dict.fromkeys(("linear_experts", "linear_experts_glu", "linear_experts_sum"), experts),
    "combine": combine,
    "router": router,
    "linear_heads": linear_heads,
    "attention": attention,
    "embed": embed,
    **dict.fromkeys(("linear", "linear_glu", "linear_add", "norm_linear", "norm_linear_glu"), linear),
}


def has_kernel(op: Op) -> bool:
    """True if the op runs on Metal with these operands."""
    weights = [operand for _, operand in op.operands if isinstance(operand, Weight)]
    is_plain = not any(weight.load_ops for weight in weights)
    return op.name in METAL and is_plain and _reads_units(op)


def _reads_units(op: Op) -> bool:
    return not op.has("weight") or products.fits(op.weight("weight").type, op.weight("weight").cols)


class RigBackend(ReferenceBackend):
    """The reference, whose ops run on the rig where Metal has a kernel."""

    def __init__(self, rig: Rig | None = None) -> None:
        super().__init__()
        self.rig = rig or Rig()

    def run_frame(self, plan: Plan, step: bytes, values: dict[str, Stored]) -> Frame:
        decoded = decode_step(step, plan.layout)
        frame = Frame(plan, decoded, self._store, self._state, values, [])
        words = mx.array(np.frombuffer(step, np.uint32))
        with created_by(self.rig):
            for op in plan.ops:
                METAL[op.name](Run(op, frame, words)) if has_kernel(op) else KERNELS[op.name](op, frame)
        return frame


@contextmanager
def created_by(rig: Rig) -> Iterator[None]:
    """Kernels are created by the rig within this context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "create", rig.metal_kernel)
        yield


def decoded(rig: Rig, weight_type: str, blocks: bytes, n: int) -> npt.NDArray[np.float32]:  # [n]
    """A row of `n` weights, through the lookup of rows."""
    raw, ids, count = np.frombuffer(blocks, np.uint8), mx.zeros(1, mx.uint32), mx.ones(1, mx.uint32)
    with created_by(rig):
        rows = products.embed(ids, mx.array(raw), weight_type=weight_type, cols=n, count=count)
    return np.array(rows)[0]
