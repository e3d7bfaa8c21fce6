"""Reference kernels of training plans (`plan/op_rows_training.py`), written from the derivatives on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from camelid.backends.reference.attention import attend
from camelid.backends.reference.basic import ACTS, GATES, op_linear, op_rope
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, row_mean, row_sum, sigmoid, softmax
from camelid.plan.op_rows_training import ANSWER, FISHER, HOW, MOMENTS, TRAINED
from camelid.plan.ops import make_op
from camelid.plan.plan import Op, View

op_linear_exact = op_linear


def op_copy_rows(op: Op, f: Frame) -> None:
    f.write(op.view("y"), f.read(op.view("x")))


def op_accumulate(op: Op, f: Frame) -> None:
    _add_to(op, f, op.view("y"), op.number("scale") * f.read(op.view("x")))


def _add_to(op: Op, f: Frame, to: View, value: F64) -> None:
    f.write(to, f.read(to) + value if op.integer("adds") else value)


def op_linear_back(op: Op, f: Frame) -> None:
    _add_to(op, f, op.view("dx"), f.read(op.view("dy")) @ f.store.matrix(op.weight("weight")))


def _values(op: Op, f: Frame, tensor: str, rank: int, cols: int) -> F64:  # [R, cols], a view of the state
    start = op.integer("at")
    floats = f.state.tensor(op.state(TRAINED), tensor)[0, 0]
    return floats[start : start + rank * cols].reshape(rank, cols)


def _factor(op: Op, f: Frame) -> F64:  # [] or [T, 1]
    scale = np.array(op.number("scale"))
    return scale * f.read(op.view("acts")) if op.has("acts") else scale


def op_shrink(op: Op, f: Frame) -> None:
    u, x = op.view("u"), f.read(op.view("x"))
    f.write(u, _factor(op, f) * (x @ _values(op, f, "value", u.cols, x.shape[1]).T))


def op_expand(op: Op, f: Frame) -> None:
    y, u = op.view("y"), f.read(op.view("u"))
    _add_to(op, f, y, (_factor(op, f) * u) @ _values(op, f, "value", u.shape[1], y.cols))


def op_outer(op: Op, f: Frame) -> None:
    u, z = f.read(op.view("u")), f.read(op.view("z"))
    gradient = _values(op, f, "gradient", u.shape[1], z.shape[1])
    gradient += (_factor(op, f) * u).T @ z


def op_attend_causal(op: Op, f: Frame) -> None:
    y = np.zeros((len(f.step.rows), op.view("y").cols))
    q, k, v = (f.read(op.view(role)) for role in ("q", "k", "v"))
    log_sums = np.zeros((len(y), op.integer("n_heads")))
    for t, keys in _causal(op, f):
        each = {"scale": op.number("scale"), "cap": op.number("softcap")}
        heads = _heads(op, q[t : t + 1], "n_heads")[0], *(_heads(op, x[keys], "n_kv_heads") for x in (k, v))
        y[t] = attend(*heads, **each)
        log_sums[t] = np.logaddexp.reduce(_scores(op, *heads[:2])[0], axis=1)
    f.write(op.view("y"), y)
    f.write(op.view("stats"), np.hstack([log_sums, np.zeros_like(log_sums)]))


def op_attend_back(op: Op, f: Frame) -> None:
    q, dy = (_heads(op, f.read(op.view(role)), "n_heads") for role in ("q", "dy"))
    k, v = (_heads(op, f.read(op.view(role)), "n_kv_heads") for role in ("k", "v"))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    group, scale = q.shape[1] // k.shape[1], op.number("scale")
    for t, keys in _causal(op, f):
        scores, slope = _scores(op, q[t], k[keys])
        probs = softmax(scores)  # [H, keys]
        dprobs = np.einsum("hv,khv->hk", dy[t], np.repeat(v[keys], group, axis=1))
        dscores = probs * (dprobs - row_sum(np.ascontiguousarray(probs * dprobs))) * slope * scale
        dq[t] = np.einsum("hk,khd->hd", dscores, np.repeat(k[keys], group, axis=1))
        dk[keys] += _by_group(np.einsum("hk,hd->khd", dscores, q[t]), group)
        dv[keys] += _by_group(np.einsum("hk,hv->khv", probs, dy[t]), group)
    for role, value in (("dq", dq), ("dk", dk), ("dv", dv)):
        f.write(op.view(role), value.reshape(len(value), -1))


def _causal(op: Op, f: Frame) -> Iterator[tuple[int, slice]]:
    """Each row of the step, with the rows that it attends to."""
    window = op.integer("window")
    for sequence in f.step.sequences:
        for t in range(sequence.first_row, sequence.first_row + sequence.rows):
            yield t, slice(max(sequence.first_row, t - window + 1 if window else 0), t + 1)


def _heads(op: Op, x: F64, count: str) -> F64:  # [T, H, D]
    return x.reshape(len(x), op.integer(count), -1)


def _scores(op: Op, q: F64, k: F64) -> tuple[F64, F64]:  # q [H, D], k [keys, K, D] -> [H, keys] twice
    """Capped scores, and the derivative of the cap."""
    scores = np.einsum("hd,khd->hk", q, np.repeat(k, len(q) // k.shape[1], axis=1)) * op.number("scale")
    cap = op.number("softcap")
    if not cap:
        return scores, np.ones_like(scores)
    tanh = np.tanh(scores / cap)
    return cap * tanh, 1.0 - tanh * tanh


def _by_group(x: F64, group: int) -> F64:  # [keys, H, D] -> [keys, K, D]
    return x.reshape(len(x), x.shape[1] // group, group, -1).sum(axis=2)


def op_norm_back(op: Op, f: Frame) -> None:
    x, dy = f.read(op.view("x")), f.read(op.view("dy"))
    width = op.integer("size") or x.shape[1]
    shape = len(x), x.shape[1] // width, width
    x, dy = x.reshape(shape), dy.reshape(shape)  # [T, groups, size]
    if op.has("gain"):
        dy = dy * f.store.vector(op.weight("gain")).reshape(-1, width)
    dx = NORMS_BACK[op.word("kind")](x, np.ascontiguousarray(dy), op.number("eps"))
    _add_to(op, f, op.view("dx"), dx.reshape(len(x), -1))


def _rms_back(x: F64, dy: F64, eps: float) -> F64:
    by = 1.0 / np.sqrt(row_mean(x * x) + eps)
    return by * dy - x * by**3 * row_mean(x * dy)


def _layer_back(x: F64, dy: F64, eps: float) -> F64:
    centred = x - row_mean(x)
    return _rms_back(centred, dy - row_mean(dy), eps)


def _l2_back(x: F64, dy: F64, eps: float) -> F64:
    squares = row_sum(x * x)
    by = 1.0 / np.sqrt(np.maximum(squares, eps * eps))
    return by * dy - np.where(squares > eps * eps, x * by**3 * row_sum(x * dy), 0.0)


def op_rope_back(op: Op, f: Frame) -> None:
    """A rotation by the negative angle is the rotation between two reflections of every second coordinate."""
    dx = op.view("dx")
    operands = {"x": dx, "fine": op.weight("fine"), "coarse": op.weight("coarse")}
    _reflect(op, f)
    op_rope(make_op("rope", operands, dict(op.attrs)), f)
    _reflect(op, f)


def _reflect(op: Op, f: Frame) -> None:
    dx = f.read(op.view("dx"))
    start, dim = op.integer("offset"), op.integer("dim")
    heads = dx.reshape(len(dx), -1, op.integer("head_dim"))[..., start : start + dim]
    second = slice(1, None, 2) if op.word("style") == "norm" else slice(dim // 2, None)
    heads[..., second] *= -1.0
    f.write(op.view("dx"), dx)


def op_glu_back(op: Op, f: Frame) -> None:
    gate, up, dy = (f.read(op.view(role)) for role in ("gate", "up", "dy"))
    act = op.word("act")
    if act in GATES:
        dgate, dup = GATES_BACK[act](gate, up)
    else:
        dgate, dup = SLOPES[act](gate) * up, ACTS[act](gate)
    f.write(op.view("dgate"), dgate * dy)
    f.write(op.view("dup"), dup * dy)


def op_unary_back(op: Op, f: Frame) -> None:
    dx = op.view("dx")
    f.write(dx, SLOPES[op.word("act")](f.read(op.view("x"))) * f.read(dx))


def op_softcap_back(op: Op, f: Frame) -> None:
    dx, y = op.view("dx"), f.read(op.view("y"))
    f.write(dx, (1.0 - (y / op.number("cap")) ** 2) * f.read(dx))


def op_clamp_back(op: Op, f: Frame) -> None:
    dx, x = op.view("dx"), f.read(op.view("x"))
    f.write(dx, np.where(np.abs(x) <= op.number("limit"), f.read(dx), 0.0))


def op_mul_back(op: Op, f: Frame) -> None:
    dx, x, r = (f.read(op.view(role)) for role in ("dx", "x", "r"))
    f.write(op.view("dr"), (x * dx).reshape(*r.shape, -1).sum(axis=2))
    f.write(op.view("dx"), dx * np.repeat(r, x.shape[1] // r.shape[1], axis=1))


def op_gather_back(op: Op, f: Frame) -> None:
    view, dy = op.view("dx"), f.read(op.view("dy"))
    dx = f.read(view) if op.integer("adds") else np.zeros((len(f.step.rows), view.cols))
    np.add.at(dx, [row for row, _, _ in f.step.outputs], dy)
    f.write(view, dx)


def op_loss(op: Op, f: Frame) -> None:
    logits, answers = f.read(op.view("logits")), f.read(op.view("answers"))
    base = f.read(op.view("base")) if op.has("base") else None
    losses, gradient = np.zeros((len(logits), 3)), np.zeros_like(logits)
    for i, (row, answer) in enumerate(zip(logits, answers, strict=True)):
        losses[i], gradient[i] = _losses(row, dict(zip(ANSWER, answer, strict=True)), base, i)
    f.write(op.view("losses"), losses)
    f.write(op.view("logits"), gradient)


def _losses(logits: F64, answer: dict[str, float], base: F64 | None, i: int) -> tuple[F64, F64]:
    """Losses (3), and the gradient of their sum with respect to the logits [V]."""
    target, logs = int(answer["target"]), logits - np.logaddexp.reduce(logits)
    probs = np.exp(logs)
    others = np.delete(logs, target)
    rest = float(np.logaddexp.reduce(others)) if len(others) else -np.inf  # ln(1 - p[target])
    hit = np.zeros_like(logits)
    hit[target] = 1.0
    gradient: F64 = answer["likelihood"] * (probs - hit)
    gap = 0.0
    if base is not None:
        base_logs = base[i] - np.logaddexp.reduce(base[i])
        gap = float((np.exp(base_logs) * (base_logs - logs)).sum())
        gradient += answer["kl"] * (probs - np.exp(base_logs))
    away: F64 = -probs[target] * np.exp(logs - rest)
    away[target] = probs[target]
    gradient += answer["unlikelihood"] * away
    losses = -answer["likelihood"] * logs[target], answer["kl"] * gap, -answer["unlikelihood"] * rest
    return np.array(losses), gradient


def op_measure(op: Op, f: Frame) -> None:
    x, dy = f.read(op.view("x")) ** 2, f.read(op.view("dy")) ** 2
    parts = (("rows", dy, x), ("cols", x, dy))
    for tensor, own, other in parts:
        sums = f.state.tensor(op.state(FISHER), tensor)[0, 0]
        start = op.integer(f"{tensor}_at")
        sums[start : start + own.shape[1]] += (own * row_sum(other)).sum(axis=0)


def op_anchor(op: Op, f: Frame) -> None:
    how = dict(zip(HOW, f.read(op.view("how"))[0], strict=True))
    at, rank, n_in, n_out = (op.integer(name) for name in ("at", "rank", "n_in", "n_out"))
    sums = (f.state.tensor(op.state(FISHER), name)[0, 0] for name in ("rows", "cols"))
    rows, cols = next(sums)[op.integer("rows_at") :][:n_out], next(sums)[op.integer("cols_at") :][:n_in]
    value, gradient = (f.state.tensor(op.state(TRAINED), name)[0, 0] for name in ("value", "gradient"))
    middle, end = at + rank * n_in, at + rank * (n_in + n_out)
    a, b = value[at:middle].reshape(rank, n_in), value[middle:end].reshape(rank, n_out)  # B transposed
    by = 2.0 * how["anchor"] / max(float(rows.sum()), np.finfo(np.float32).tiny)
    gradient[at:middle] += (by * ((b * rows) @ b.T) @ (a * cols)).ravel()
    gradient[middle:end] += (by * ((a * cols) @ a.T) @ (b * rows)).ravel()


def op_adamw(op: Op, f: Frame) -> None:
    how = dict(zip(HOW, f.read(op.view("how"))[0], strict=True))
    value, gradient = (f.state.tensor(op.state(TRAINED), name) for name in ("value", "gradient"))
    first, second = (f.state.tensor(op.state(MOMENTS), name) for name in ("first", "second"))
    norm = float(np.sqrt((gradient.astype(np.float64) ** 2).sum()))
    most = how["most_norm"]
    g = gradient.astype(np.float64) * (min(1.0, most / (norm + 1e-6)) if most else 1.0)
    b1, b2 = op.number("first_beta"), op.number("second_beta")
    first[...] = b1 * first + (1.0 - b1) * g
    second[...] = b2 * second + (1.0 - b2) * g * g
    step = first / how["first_correction"] / (np.sqrt(second / how["second_correction"]) + op.number("eps"))
    value -= how["rate"] * (step + how["decay"] * value)
    gradient[...] = 0.0
    f.write(op.view("norm"), np.full((1, 1), norm))


def _silu_slope(x: F64) -> F64:
    s = sigmoid(x)
    return s + x * s * (1.0 - s)


def _gelu_slope(x: F64) -> F64:
    by = np.sqrt(2.0 / np.pi)
    tanh = np.tanh(by * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh**2) * by * (1.0 + 3 * 0.044715 * x * x)


def _gelu_erf_slope(x: F64) -> F64:
    """Phi(x) + x * phi(x); Phi from gelu_erf(x) - gelu_erf(-x) = x, so Phi(x) = gelu_erf(x) / x."""
    phi = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    safe = np.where(x == 0.0, 1.0, x)
    below = np.where(x == 0.0, 0.5, ACTS["gelu_erf"](safe) / safe)
    return below + x * phi


def _swiglu_oai_back(gate: F64, up: F64) -> tuple[F64, F64]:
    low, held = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    s = sigmoid(1.702 * low)
    slope = s + low * 1.702 * s * (1.0 - s)
    return np.where(gate <= 7.0, slope, 0.0) * (held + 1.0), np.where(np.abs(up) <= 7.0, low * s, 0.0)


NORMS_BACK: dict[str, Callable[[F64, F64, float], F64]] = {
    "rms": _rms_back,
    "layer": _layer_back,
    "l2": _l2_back,
}
SLOPES: dict[str, Callable[[F64], F64]] = {  # derivatives of ACTS
    "silu": _silu_slope,
    "gelu": _gelu_slope,
    "gelu_erf": _gelu_erf_slope,
    "relu": lambda x: (x > 0.0).astype(np.float64),
    "relu2": lambda x: 2.0 * np.maximum(x, 0.0),
    "sigmoid": lambda x: sigmoid(x) * (1.0 - sigmoid(x)),
    "tanh": lambda x: 1.0 - np.tanh(x) ** 2,
}
GATES_BACK: dict[str, Callable[[F64, F64], tuple[F64, F64]]] = {"swiglu_oai": _swiglu_oai_back}
