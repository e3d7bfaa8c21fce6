"""Kernels of a GPU, in place of those of MLX's own ops: `metal/` reads the file's blocks and the pages of the
KV cache. A row's bits depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from camelid.plan.plan import Op, Plan, StateRef, View, whole
from camelid.plan.weights import Weight
from camelid_native.mlx import ops_basic, ops_sampling, ops_state
from camelid_native.mlx.arrays import F32, Array
from camelid_native.mlx.metal import adapters, attention, experts, products, rows, sampling
from camelid_native.mlx.metal.launch import StepForm
from camelid_native.mlx.trace import TABLE, Trace

BLOCK_TYPES = ("q8_0", "q4_0")
COUNTS = {"T": "rows", "S": "sequences", "O": "outputs"}  # of a view's rows -> a step's word
# The rewrites of plan/fuse.py with kernels here.
FUSED = frozenset({
    "add_norm", "linear_glu", "experts", "join_linears", "join_ropes", "linear_add", "linear_add_norm",
    "norm_rope_write",
})  # fmt: skip


def refusal(plan: Plan) -> str:
    """The reason against a plan: a shape that no kernel reads; "" if there is none."""
    return next((reason for op in plan.ops for reason in [_against(op)] if reason), "")


def _against(op: Op) -> str:
    for role in MATRICES if _reads_blocks(op) else ():
        weight = op.weight(role) if op.has(role) else None
        if weight and not products.fits(weight.type, weight.cols):
            return f"{op.name}: {weight.name} has rows of {weight.cols}, not of a multiple of {products.UNIT}"
    if op.name == "attention" and not attention.fits(op.view("q").cols // op.integer("n_heads")):
        return f"{op.name}: heads of {op.view('q').cols // op.integer('n_heads')} columns have no kernel"
    return ""


MATRICES = ("weight", "up_weight")


def _reads_blocks(op: Op) -> bool:
    """True for lookups and products; other ops read floats (`Weights.placed`)."""
    return op.name == "embed" or "linear" in op.name.split("_")


def _counted(f: Trace, view: View) -> dict[str, Any]:
    """Arguments that state how many rows of a view live."""
    return {"count": f.words, "count_at": f.plan.layout.header_word(COUNTS[view.rows])}


def _vector(op: Op, f: Trace, role: str) -> Array | None:
    return f.weights.vector(op.weight(role)) if op.has(role) else None


def _sizes(weight: Weight) -> dict[str, Any]:
    return {"weight_type": weight.type, "cols": weight.cols}


# ---- Products


def op_linear(op: Op, f: Trace) -> None:
    """All products of one matrix."""
    weight, y = op.weight("weight"), op.view("y")
    is_added = op.name.startswith("linear_add")
    made = products.linear(
        f.read(op.view("x")),
        f.weights.blocks(weight),
        **_sizes(weight),
        outputs=y.cols,
        **_counted(f, y),
        bias=_vector(op, f, "bias") if op.has("bias") else None,
        act=op.word("act") if op.name.endswith("glu") else "",
        added=f.read(y) if is_added else None,
        scale=op.number("scale") if is_added else 1.0,
        norm_eps=op.number("eps") if op.name.startswith("norm_") else None,
    )
    f.write(y, made)


op_linear_glu = op_linear_add = op_norm_linear = op_norm_linear_glu = op_linear


def op_linear_add_norm(op: Op, f: Trace) -> None:
    weight, y = op.weight("weight"), op.view("y")
    total, z = products.linear_add_norm(
        f.read(op.view("x")),
        f.weights.blocks(weight),
        **_sizes(weight),
        outputs=weight.rows,
        **_counted(f, y),
        added=f.read(y),
        gain=f.weights.vector(op.weight("gain")),
        scale=op.number("scale"),
        bias=_vector(op, f, "bias"),
    )
    f.write(y, total)
    f.write(op.view("z"), z)


def op_linear_heads(op: Op, f: Trace) -> None:
    y = op.view("y")
    f.write(y, experts.heads(f.read(op.view("x")), _stack(op, f, ""), **_counted(f, y)))


def op_embed(op: Op, f: Trace) -> None:
    ids = ops_basic.token_ids(op, f)
    weight, y = op.weight("weight"), op.view("y")
    how: dict[str, Any] = {**_sizes(weight), "scale": op.number("scale"), **_counted(f, y)}
    f.write(y, products.embed(ids, f.weights.blocks(weight), **how))
    ops_basic.keep_ids(op, f)


# ---- Experts


def op_router(op: Op, f: Trace) -> None:
    choice = experts.Choice(
        gate=op.word("gate"),
        used=op.view("ids").cols,
        normalize=bool(op.integer("normalize")),
        scale=op.number("scale"),
        n_groups=op.integer("n_groups"),
        n_groups_used=op.integer("n_groups_used"),
    )
    how: dict[str, Any] = {"bias": _vector(op, f, "bias"), **_counted(f, op.view("ids"))}
    ids, probs = experts.router(f.read(op.view("logits")), choice, **how)
    gain = _vector(op, f, "gain")
    f.write(op.view("ids"), ids.astype(F32))
    f.write(op.view("probs"), probs if gain is None else probs * gain[ids])


def op_linear_experts(op: Op, f: Trace) -> None:
    up, act = (_stack(op, f, "up_"), op.word("act")) if op.has("up_weight") else (None, "")
    is_sum = op.name == "linear_experts_sum"
    target = op.view("x" if is_sum else "y")
    how = _counted(f, target)
    made = experts.experts(
        f.read(op.view("x")), f.read(op.view("ids")), _stack(op, f, ""), up=up, act=act, **how
    )
    f.write(op.view("y"), experts.combine(made, f.read(op.view("probs")), **how) if is_sum else made)


op_linear_experts_glu = op_linear_experts_sum = op_linear_experts


def op_combine(op: Op, f: Trace) -> None:
    y = op.view("y")
    f.write(y, experts.combine(f.read(op.view("x")), f.read(op.view("probs")), **_counted(f, y)))


def _stack(op: Op, f: Trace, half: str) -> experts.Stack:
    weight, bias = op.weight(f"{half}weight"), f"{half}bias"
    n_experts, outputs, _ = weight.shape
    own = f.weights.matrix(op.weight(bias)) if op.has(bias) else None
    sizes: dict[str, Any] = {"experts": n_experts, "outputs": outputs, **_sizes(weight)}
    return experts.Stack(blocks=f.weights.blocks(weight), **sizes, bias=own)


# ---- Adapters, and what stands behind their terms


def op_low_rank(op: Op, f: Trace) -> None:
    is_stack, state, y = op.has("ids"), op.state("adapters"), op.view("y")
    n_slots = op.view("ids").cols if is_stack else 1
    is_deferred = not is_stack and op.integer("deferred")
    site = adapters.Site(
        held=f.state[state.group, state.layer, str(op.integer("tensor"))],
        rank=op.integer("rank"),
        n_in=op.integer("n_in"),
        n_out=y.cols // n_slots,
        experts=op.integer("experts") if is_stack else 0,
        scale=1.0 if is_stack else op.number("scale"),
        norm_eps=op.number("eps") if is_deferred else None,
    )
    ids = f.read(op.view("ids")) if is_stack else None
    how: dict[str, Any] = {"count_at": _counted(f, y)["count_at"], "is_of_outputs": y.rows == "O"}
    x = f.read(op.view("x"))
    f.write(whole(y.buffer), adapters.low_rank(_columns(y, f), x, site, f.words, _form(f), ids=ids, **how))


op_low_rank_experts = op_low_rank


def op_defer_norm(op: Op, f: Trace) -> None:
    y = op.view("y")
    f.write(
        op.view("z"), adapters.defer_norm(f.read(y), f.weights.vector(op.weight("gain")), **_counted(f, y))
    )


def op_glu(op: Op, f: Trace) -> None:
    y, gate, up = op.view("y"), _columns(op.view("gate"), f), _columns(op.view("up"), f)
    f.write(y, adapters.glu(gate, up, y.cols, op.word("act"), **_counted(f, y)))


def _columns(view: View, f: Trace) -> adapters.Columns:
    return adapters.Columns(buffer=f.read(whole(view.buffer)), first=view.offset)


# ---- Norms, rotations, the KV cache


def op_norm(op: Op, f: Trace) -> None:
    weights = {name: _vector(op, f, name) for name in ("gain", "bias")}
    kind = {"kind": op.word("kind"), "size": op.integer("size"), "eps": op.number("eps")}
    f.write(op.view("y"), rows.norm(f.read(op.view("x")), **weights, **kind, **_counted(f, op.view("x"))))


def op_add_norm(op: Op, f: Trace) -> None:
    gain, how = f.weights.vector(op.weight("gain")), _counted(f, op.view("x"))
    numbers = {"scale": op.number("scale"), "eps": op.number("eps")}
    y, x = rows.add_norm(f.read(op.view("x")), f.read(op.view("r")), gain, **numbers, **how)
    f.write(op.view("x"), x)
    f.write(op.view("y"), y)


def op_rope(op: Op, f: Trace) -> None:
    """Rotations of heads, after their norms if the op has gains."""
    has_gains = op.name != "rope"
    if not has_gains and op.integer("channel"):  # of images alone, where the kernel's Row has one position
        ops_basic.op_rope(op, f)
        return
    cols = {name: op.integer(name) for name in ("k_cols", "v_cols") if has_gains}
    tables = {name: f.weights.matrix(op.weight(name)) for name in ("fine", "coarse")}
    sizes = {name: op.integer(name) for name in ("head_dim", "dim", "offset")}
    heads = rows.Turn(style=op.word("style"), **sizes, **cols, **tables)
    gains = {name: _vector(op, f, name) for name in ("q_gain", "k_gain") if has_gains}
    eps = op.number("eps") if has_gains else 0.0
    x = op.view("x")
    f.write(x, rows.norm_rope(f.read(x), f.words, _form(f), heads, eps=eps, **gains))


op_norm_rope = op_rope


def op_norm_rope_write(op: Op, f: Trace) -> None:
    op_rope(op, f)
    x, k_cols, v_cols = f.read(op.view("x")), op.integer("k_cols"), op.integer("v_cols")
    k_end = x.shape[1] - v_cols
    _put(op, f, {"k": x[:, k_end - k_cols : k_end], "v": x[:, k_end:]})


def op_kv_write(op: Op, f: Trace) -> None:
    _put(op, f, {name: f.read(op.view(name)) for name in ("k", "v") if op.has(name)})


def _put(op: Op, f: Trace, values: Mapping[str, Array]) -> None:
    """Writes rows of the cache; those of blocks are encoded by a kernel."""
    state = op.state("state")
    kv_type, place = f.spec(state).kv_type, ops_state.places(f, state)
    how: dict[str, Any] = {"count": f.words, "count_at": f.plan.layout.header_word("rows")}
    for name, value in values.items():
        is_blocks = kv_type in BLOCK_TYPES
        stored = rows.blocks(value, kv_type, **how) if is_blocks else ops_state.encoded(f, state, value)
        f.put((state.group, state.layer, name), place, stored)


def op_attention(op: Op, f: Trace) -> None:
    n_heads, y = op.integer("n_heads"), op.view("y")
    heads = attention.Heads(
        n_heads=n_heads,
        n_kv_heads=op.integer("n_kv_heads"),
        v_dim=y.cols // n_heads,
        scale=op.number("scale"),
        is_held=op.word("mask") == "held",
        is_chunked=op.word("mask") == "chunked",
        window=op.integer("window"),
        softcap=op.number("softcap"),
    )
    tail = _pools(f, op.state("tail")) if op.has("tail") else None
    more = {
        "sinks": _vector(op, f, "sinks"),
        "bias": f.weights.matrix(op.weight("bias")) if op.has("bias") else None,
    }
    q, own = f.read(op.view("q")), _pools(f, op.state("state"))
    f.write(y, attention.attention(q, own, f.words, _form(f), heads, tail=tail, **more))


def _pools(f: Trace, state: StateRef) -> attention.Pools:
    spec, table = f.spec(state), f.state[state.group, 0, TABLE]
    tensors = dict(spec.tensors)
    return attention.Pools(
        kv_type=spec.kv_type,
        group=f.plan.group(state.group),
        keys=f.state[state.group, state.layer, "k"],
        values=f.state[state.group, state.layer, "v"] if "v" in tensors else None,
        tables=table[1:].reshape(-1, f.table_cols[state.group]),
        page_rows=spec.unit_rows,
    )


def _form(f: Trace) -> StepForm:
    layout = f.plan.layout
    return StepForm(row_words=layout.row_words, sequence_words=layout.sequence_words)


# ---- Sampling


def op_sample(op: Op, f: Trace) -> None:
    logits, tokens = f.read(op.view("logits")), op.state("tokens")
    n = f.spec(tokens).unit_rows
    ring = f.state[tokens.group, tokens.layer, "id"].reshape(-1, n)
    drawn = sampling.sample(logits, f.words, ring, _form(f), group=f.plan.group(tokens.group))
    f.results["rows"] = drawn
    if "all_logits" in f.plan.key.features:
        f.results["floats"] = logits
    ops_sampling.keep_drawn(op, f, drawn[:, 0])


def op_candidates(op: Op, f: Trace) -> None:
    f.results["candidates"] = sampling.candidates(f.read(op.view("logits")), f.words, _form(f))
