"""Reference kernels of recurrent ops, which carry state from row to row in slots."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from camelid.backends.reference.basic import ACTS
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F32, F64, row_sum, sigmoid
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.plan import Op

# (state before, row number) -> (state after, y of the row); both states [cols]
RowStep = Callable[[F64, int], tuple[F64, F64]]


def op_conv1d(op: Op, f: Frame) -> None:
    x, weight = f.read(op.view("x")), f.store.matrix(op.weight("weight"))  # [T, C], [C, n]
    bias = f.store.vector(op.weight("bias")) if op.has("bias") else 0.0
    act = op.word("act")

    def step(state: F64, t: int) -> tuple[F64, F64]:
        seen = np.concatenate([state, x[t]]).reshape(-1, x.shape[1])  # [n, C]
        y = (seen * weight.T).sum(axis=0) + bias
        return seen[1:].ravel(), y if act == "none" else ACTS[act](y)

    _each_row(op, f, step)


def op_scan_mamba2(op: Op, f: Frame) -> None:
    """State space duality in recurrent form (Dao and Gu, arXiv 2405.21060)."""
    dt = _softplus(f, op)  # [T, H]
    n_rows, n_heads = dt.shape
    x = f.read(op.view("x")).reshape(n_rows, n_heads, -1)  # [T, H, P]
    b, c = (_spread(f.read(op.view(role)), op.integer("n_groups"), n_heads) for role in "bc")  # [T, H, N]
    a = f.store.vector(op.weight("a")).reshape(n_heads, 1, -1)  # [H, 1, 1 or N]
    skip = f.store.vector(op.weight("d"))[:, None] * x if op.has("d") else np.zeros_like(x)

    def step(flat: F64, t: int) -> tuple[F64, F64]:
        new = (dt[t, :, None] * x[t])[..., None] * b[t, :, None]
        decay = np.exp(dt[t, :, None, None] * a)
        state = decay * flat.reshape(n_heads, -1, b.shape[-1]) + new  # [H, P, N]
        return state.ravel(), ((state * c[t, :, None]).sum(axis=-1) + skip[t]).ravel()

    _each_row(op, f, step)


def op_scan_delta(op: Op, f: Frame) -> None:
    """The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464)."""
    beta = f.read(op.view("beta"))  # [T, H]
    n_rows, n_heads = beta.shape
    q, k = (_spread(f.read(op.view(role)), op.integer("n_key_heads"), n_heads) for role in "qk")  # [T, H, K]
    v = f.read(op.view("v")).reshape(n_rows, n_heads, -1)  # [T, H, V]
    decay = np.exp(f.store.vector(op.weight("a")) * _softplus(f, op))  # [T, H]

    def step(flat: F64, t: int) -> tuple[F64, F64]:
        state = decay[t, :, None, None] * flat.reshape(n_heads, -1, k.shape[-1])  # [H, V, K]
        delta = v[t] - (state * k[t, :, None]).sum(axis=-1)
        state = state + (beta[t, :, None] * delta)[..., None] * k[t, :, None]
        return state.ravel(), (state * (op.number("scale") * q[t, :, None])).sum(axis=-1).ravel()

    _each_row(op, f, step)


def op_token_shift(op: Op, f: Frame) -> None:
    x, lerp = f.read(op.view("x")), f.store.vector(op.weight("lerp"))  # [T, C], [n * C]
    lerp, start = lerp.reshape(-1, x.shape[1]), op.integer("part") * x.shape[1]

    def step(before: F64, t: int) -> tuple[F64, F64]:
        return x[t], (x[t] + lerp * (before - x[t])).ravel()

    _each_row(op, f, step, slice(start, start + x.shape[1]))


def op_scan_rwkv6(op: Op, f: Frame) -> None:
    """RWKV-6 (Peng et al., arXiv 2404.05892, section 4), and without `u` gated linear attention (QRWKV6)."""
    n_heads = op.integer("n_heads")
    r, w = (_heads(f.read(op.view(role)), n_heads) for role in "rw")  # [T, H, D] each
    n_key_heads = op.view("k").cols // r.shape[-1]
    k, v = (_spread(f.read(op.view(role)), n_key_heads, n_heads) for role in "kv")  # [T, H, D] each
    decay, share = np.exp(-np.exp(w)), -np.expm1(-np.exp(w))
    u = f.store.vector(op.weight("u")).reshape(r.shape[1:]) if op.has("u") else None
    key = k if op.has("u") else k * share

    def step(flat: F64, t: int) -> tuple[F64, F64]:
        state = flat.reshape(n_heads, r.shape[-1], -1)  # [H, D, D]
        after = state * decay[t, :, None] + v[t][..., None] * key[t, :, None]
        if u is None:
            return after.ravel(), (after * r[t, :, None]).sum(axis=-1).ravel()
        bonus = (r[t] * u * k[t]).sum(axis=-1, keepdims=True) * v[t]
        return after.ravel(), ((state * r[t, :, None]).sum(axis=-1) + bonus).ravel()

    _each_row(op, f, step)


def op_scan_rwkv7(op: Op, f: Frame) -> None:
    """RWKV-7 (Peng et al., arXiv 2503.14456): the generalized delta rule of its section 3."""
    n_heads = op.integer("n_heads")
    r, w, v, a = (_heads(f.read(op.view(role)), n_heads) for role in "rwva")  # [T, H, D] each
    decay, key = np.exp(-math.exp(-0.5) * sigmoid(w)), _heads(_rwkv7_key(op, f), n_heads)
    u = _heads(f.read(op.view("k")) * f.store.vector(op.weight("k_k")), n_heads)
    u = u / np.maximum(np.linalg.norm(u, axis=-1, keepdims=True), 1e-12)

    def step(flat: F64, t: int) -> tuple[F64, F64]:
        state = flat.reshape(n_heads, v.shape[-1], -1)  # [H, D, D]
        removed = (state * u[t, :, None]).sum(axis=-1)[..., None] * (a[t] * u[t])[:, None]
        state = state * decay[t, :, None] - removed + v[t][..., None] * key[t, :, None]
        return state.ravel(), (state * r[t, :, None]).sum(axis=-1).ravel()

    _each_row(op, f, step)


def op_bonus_rwkv7(op: Op, f: Frame) -> None:
    n_heads = op.integer("n_heads")
    weighted = f.read(op.view("r")) * f.store.vector(op.weight("r_k")) * _rwkv7_key(op, f)
    share = row_sum(_heads(weighted, n_heads))  # [T, H, 1]
    bonus = _heads(f.read(op.view("v")), n_heads) * share
    f.write(op.view("x"), f.read(op.view("x")) + bonus.reshape(weighted.shape))


def _rwkv7_key(op: Op, f: Frame) -> F64:  # [T, H * D]
    return f.read(op.view("k")) * (1.0 + (f.read(op.view("a")) - 1.0) * f.store.vector(op.weight("k_a")))


def _heads(x: F64, n_heads: int) -> F64:  # [T, H * D] -> [T, H, D]
    return x.reshape(len(x), n_heads, x.shape[1] // n_heads)


def _each_row(op: Op, f: Frame, step: RowStep, columns: slice = slice(None)) -> None:
    """Runs each sequence's rows in order, from these columns of its read slot to those of its write slot."""
    ref, view = op.state("state"), op.view("y")
    pool: F32 = f.state.tensor(ref, SLOT_TENSORS[op.name])[:, 0, columns]  # [slots, cols]
    y = np.zeros((len(f.step.rows), view.cols))
    for sequence in f.step.sequences:
        read, write, held = sequence.groups[f.plan.group(ref.group)]
        state = pool[read] if held else np.zeros_like(pool[read])
        for t in range(sequence.first_row, sequence.first_row + sequence.rows):
            after, y[t] = step(state.astype(np.float64), t)
            state = after.astype(
                np.float32
            )  # rounded after every row, so that results do not depend on chunks
        pool[write] = state
    f.write(view, y)


def _softplus(f: Frame, op: Op) -> F64:  # [T, H]
    """log(1 + exp(dt + dt_bias)), without overflow."""
    x = f.read(op.view("dt"))
    return np.logaddexp(0.0, x + f.store.vector(op.weight("dt_bias")) if op.has("dt_bias") else x)


def _spread(x: F64, n: int, n_heads: int) -> F64:  # [T, n * K] -> [T, H, K]
    """Repeats each of n groups for its n_heads / n neighbouring heads."""
    return np.repeat(x.reshape(len(x), n, -1), n_heads // n, axis=1)
