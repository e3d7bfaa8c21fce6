"""Op rows, part one: state changes, embeddings, elementwise ops, norms, linear maps, experts, sampling."""

from __future__ import annotations

from camelid.plan.oprow import Counts, OpRow, elementwise, fits, matrix, same
from camelid.plan.plan import Op


def _norm_rule(op: Op) -> bool:
    width = op.integer("size") or op.view("x").cols
    whole = op.view("x").cols % width == 0
    gain = fits(op, "gain", width) or fits(op, "gain", op.view("x").cols // width, width)
    return same("x", "y")(op) and whole and gain and fits(op, "bias", width)


def _add_norm_rule(op: Op) -> bool:
    return same("x", "y", "r")(op) and fits(op, "gain", op.view("x").cols)


def _linear_rule(op: Op) -> bool:
    n = op.view("y").cols
    return op.weight("weight").shape == (n, op.view("x").cols) and fits(op, "bias", n)


def _linear_glu_rule(op: Op) -> bool:
    return op.weight("weight").shape == (2 * op.view("y").cols, op.view("x").cols)


def _mul_rule(op: Op) -> bool:
    x, r = op.view("x"), op.view("r")
    return x.rows == r.rows and x.cols % r.cols == 0


def _experts_rule(op: Op) -> bool:
    n_experts, n_out, n_in = op.weight("weight").shape
    n_used = op.view("ids").cols
    fed = op.view("x").cols in (n_in, n_used * n_in)
    return fed and op.view("y").cols == n_used * n_out and fits(op, "bias", n_experts, n_out)


def _experts_flops(op: Op, counts: Counts) -> int:
    _, n_out, n_in = op.weight("weight").shape
    return 2 * counts.rows[op.view("y").rows] * op.view("ids").cols * n_out * n_in


def _of_experts(op: Op) -> bool:
    n = op.view("logits").cols
    return fits(op, "bias", n) and fits(op, "gain", n)


def _router_rule(op: Op) -> bool:
    ids, logits = op.view("ids"), op.view("logits")
    n_groups, n_groups_used = op.integer("n_groups"), op.integer("n_groups_used")
    whole = 0 < n_groups_used <= n_groups and logits.cols % n_groups == 0
    enough = 0 < ids.cols <= logits.cols // max(n_groups, 1) * n_groups_used
    is_plain = op.word("gate") != "sparsemixer" or (n_groups == 1 and not op.has("bias"))
    return same("ids", "probs")(op) and whole and enough and is_plain and _of_experts(op)


def _gather_rule(op: Op) -> bool:
    """Requires equal columns and dtypes: `outputs.py` moves the gather, so it must not round."""
    x, y = op.view("x"), op.view("y")
    return (y.cols, y.dtype) == (x.cols, x.dtype)


def _combine_rule(op: Op) -> bool:
    return op.view("x").cols == op.view("probs").cols * op.view("y").cols


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="tables",
        states=("state",),
        meaning="table[table_row, index] = unit, for each of the step's updates of this group",
    ),
    OpRow(
        name="copy",
        states=("state",),
        meaning="pool[destination][:rows] = pool[source][:rows], for each of the step's copies",
    ),
    OpRow(
        name="embed",
        writes=("y",),
        weights=("weight",),
        states=("tokens",),
        defaults={"scale": 1.0},
        rule=lambda op: op.weight("weight").cols == op.view("y").cols,
        meaning="y = scale * weight[token]; the token is the row's id, or ring[sequence, state_row] "
        "if sampled on the device. The ids of a sequence's last rows are written to the ring, up to its size",
    ),
    OpRow(
        name="embed_position",
        updates=("x",),
        weights=("weight",),
        defaults={"channel": 0},
        rule=lambda op: op.weight("weight").cols == op.view("x").cols,
        flops=elementwise("x", 1),
        meaning="x = x + weight[positions[channel]]",
    ),
    OpRow(
        name="norm",
        writes=("y",),
        reads=("x",),
        weights=("gain?", "bias?"),
        attrs=("eps",),
        defaults={"kind": "rms", "size": 0},
        rule=_norm_rule,
        row_wise=True,
        flops=elementwise("x", 4),
        meaning="for each group of `size` columns (0: all): rms: x / sqrt(mean(x * x) + eps); "
        "layer: (x - mean) / sqrt(var + eps); l2: x / sqrt(max(sum(x * x), eps^2)); then * gain + bias; "
        "a gain [groups, size] has one row per group",
    ),
    OpRow(
        name="add",
        updates=("x",),
        reads=("r",),
        defaults={"scale": 1.0},
        rule=same("x", "r"),
        row_wise=True,
        flops=elementwise("x", 1),
        meaning="x = x + scale * r",
    ),
    OpRow(
        name="all_reduce",
        updates=("x",),
        row_wise=True,
        meaning="x = x of device 0 + x of device 1 + ..., in this order; on one device x",
    ),
    OpRow(
        name="add_norm",
        writes=("y",),
        updates=("x",),
        reads=("r",),
        weights=("gain",),
        attrs=("eps",),
        defaults={"scale": 1.0},
        rule=_add_norm_rule,
        row_wise=True,
        flops=elementwise("x", 5),
        meaning="x = x + scale * r; y = rms norm(x, gain)",
    ),
    OpRow(
        name="mul",
        updates=("x",),
        reads=("r",),
        rule=_mul_rule,
        row_wise=True,
        flops=elementwise("x", 1),
        meaning="x = x * r; one column of r scales x.cols / r.cols neighbouring columns of x",
    ),
    OpRow(
        name="scale",
        updates=("x",),
        attrs=("by",),
        row_wise=True,
        flops=elementwise("x", 1),
        meaning="x = by * x",
    ),
    OpRow(
        name="softcap",
        updates=("x",),
        attrs=("cap",),
        rule=lambda op: op.number("cap") > 0.0,
        row_wise=True,
        flops=elementwise("x", 3),
        meaning="x = cap * tanh(x / cap)",
    ),
    OpRow(
        name="clamp",
        updates=("x",),
        attrs=("limit",),
        rule=lambda op: op.number("limit") > 0.0,
        row_wise=True,
        flops=elementwise("x", 2),
        meaning="x = min(max(x, -limit), limit)",
    ),
    OpRow(
        name="unary",
        updates=("x",),
        attrs=("act",),
        row_wise=True,
        flops=elementwise("x", 4),
        meaning="x = act(x)",
    ),
    OpRow(
        name="xielu",
        updates=("x",),
        weights=("alpha",),
        rule=lambda op: fits(op, "alpha", 4),
        row_wise=True,
        flops=elementwise("x", 6),
        meaning="p, n, b, e = alpha; x = b * x + (p * x * x if x > 0, else n * (exp(min(x, e)) - x - 1))",
    ),
    OpRow(
        name="linear",
        writes=("y",),
        reads=("x",),
        weights=("weight", "bias?"),
        rule=_linear_rule,
        row_wise=True,
        flops=matrix("weight", "y"),
        meaning="y = weight @ x + bias",
    ),
    OpRow(
        name="glu",
        writes=("y",),
        reads=("gate", "up"),
        attrs=("act",),
        rule=same("y", "gate", "up"),
        row_wise=True,
        flops=elementwise("y", 5),
        meaning="y = act(gate) * up",
    ),
    OpRow(
        name="linear_glu",
        writes=("y",),
        reads=("x",),
        weights=("weight",),
        attrs=("act",),
        rule=_linear_glu_rule,
        row_wise=True,
        flops=matrix("weight", "y"),
        meaning="gate, up = split(weight @ x); y = act(gate) * up",
    ),
    OpRow(
        name="router",
        writes=("ids", "probs"),
        reads=("logits",),
        weights=("bias?", "gain?"),
        attrs=("gate",),
        defaults={"normalize": 0, "scale": 1.0, "n_groups": 1, "n_groups_used": 1},
        rule=_router_rule,
        row_wise=True,
        exact=("ids",),
        flops=elementwise("logits", 4),
        meaning="p = gate(logits); ids = the largest of p + bias (ties: lowest id), largest first; "
        "probs = p[ids], divided by their sum if normalize; * scale * gain[ids]. Gates: softmax, sigmoid, "
        "topk_softmax (softmax over the chosen logits), sparsemixer (for each slot, softmax over the experts "
        "not chosen before whose logit s is near the largest t: t - s <= 0.02 * max(|s|, t)). Experts form "
        "n_groups groups of neighbours; ids come from the n_groups_used groups whose two largest p + bias "
        "have the largest sum",
    ),
    OpRow(
        name="linear_experts",
        writes=("y",),
        reads=("x", "ids"),
        weights=("weight", "bias?"),
        rule=_experts_rule,
        row_wise=True,
        exact=("ids",),
        flops=_experts_flops,
        meaning="y[slot] = weight[ids[slot]] @ x[slot] + bias[ids[slot]]; an x of one slot serves all slots",
    ),
    OpRow(
        name="combine",
        writes=("y",),
        reads=("x", "probs"),
        rule=_combine_rule,
        row_wise=True,
        flops=elementwise("x", 2),
        meaning="y = sum over slots of probs[slot] * x[slot]",
    ),
    OpRow(
        name="gather_rows",
        writes=("y",),
        reads=("x",),
        rule=_gather_rule,
        meaning="y[o] = x[outputs[o].row], with the same dtype",
    ),
    OpRow(
        name="sample",
        reads=("logits",),
        states=("tokens",),
        exact=("logits",),
        flops=elementwise("logits", 4),
        meaning="on a copy of the logits: add the biases; for each id in the last n positions of the ring "
        "(which holds those from the sequence's last output on back, whose draw it is to hold too), "
        "multiply a logit <= 0 by the repeat penalty, divide a logit > 0 by it, then subtract "
        "count * frequency + presence; keep the k largest logits (ties: lowest id); of these, the fewest ids "
        "whose probabilities sum to top p; of these, the ids with a probability of at least min p times the "
        "largest; id = argmax(logit / temperature + gumbel) (ties: lowest id). A sequence's last output: "
        "ring[sequence, position] = id. Result = id, status, and the id's logit and the log-sum-exp of the "
        "logits before the copy was changed",
    ),
    OpRow(
        name="candidates",
        reads=("logits",),
        exact=("logits",),
        flops=elementwise("logits", 6),
        meaning="appended to the result: the 256 largest logits (ties: lowest id), largest first, with their "
        "ids, and the mean and variance of all logits above -inf",
    ),
)
