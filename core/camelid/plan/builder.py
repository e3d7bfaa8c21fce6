"""The plan builder: each method appends one op, checked against its row, and returns the view it writes."""

from __future__ import annotations

from camelid.plan.dtypes import F32
from camelid.plan.ops import make_op
from camelid.plan.plan import Attr, Buffer, Op, Operand, Plan, StateRef, StateSpec, View
from camelid.plan.stages import join_stages
from camelid.plan.step import ProgramKey
from camelid.plan.tiers import tail_of
from camelid.plan.weights import Weight


class PlanBuilder:
    """Ops of one entry, in order. Calls read like the maths: `y = plan.linear(x, w)`.

    Activations are stored as `dtype`; expert ids and logits are float32 in every plan.
    """

    def __init__(
        self, key: ProgramKey, states: tuple[StateSpec, ...], *, n_channels: int = 1, dtype: str = F32
    ) -> None:
        self.key = key
        self.states = states
        self.dtype = dtype
        self.n_channels = n_channels
        self._stages: list[tuple[str, list[Op]]] = [("main", [])]
        self._given: list[Buffer] = []
        self._made: list[Buffer] = []
        self._names: dict[str, int] = {}

    def add_op(self, name: str, operands: dict[str, Operand | None], **attrs: Attr) -> None:
        """Appends an op without its operands that are None. Raises PlanError if the op breaks its row."""
        present = {role: operand for role, operand in operands.items() if operand is not None}
        self._stages[-1][1].append(make_op(name, present, attrs))

    def new(self, name: str, rows: str, cols: int, *, dtype: str = "") -> View:
        """Creates an activation `[rows, cols]` of the plan's dtype or of `dtype`.

        A repeated name gets a numeric suffix.
        """
        n = self._names[name] = self._names.get(name, -1) + 1
        return View(Buffer(f"{name}.{n}" if n else name, rows, cols, dtype or self.dtype), cols)

    def given(self, name: str, cols: int) -> View:
        """An input `[T, cols]` of the plan in float32, which `Backend.run` receives with each step."""
        y = self.new(name, "T", cols, dtype=F32)
        self._given.append(y.buffer)
        return y

    def made(self, x: View) -> None:
        """Makes the whole buffer of `x` an output of the plan, which `Backend.read_boundary` returns."""
        self._made.append(x.buffer)

    def cut(self, name: str) -> None:
        """Starts a new stage; later ops belong to it."""
        self._stages.append((name, []))

    def build(self) -> Plan:
        return Plan(
            key=self.key,
            stages=join_stages(
                [(name, tuple(ops)) for name, ops in self._stages], given=self._given, made=self._made
            ),
            states=self.states,
            n_channels=self.n_channels,
        )

    def tables(self, group: str) -> None:
        self.add_op("tables", {"state": StateRef(group)})

    def copy(self, group: str) -> None:
        self.add_op("copy", {"state": StateRef(group)})

    def embed(self, weight: Weight, tokens: str, scale: float = 1.0) -> View:
        y = self.new("x", "T", weight.cols)  # [T, C]
        self.add_op("embed", {"y": y, "weight": weight, "tokens": StateRef(tokens)}, scale=scale)
        return y

    def embed_position(self, x: View, weight: Weight, channel: int = 0) -> None:
        """x += weight[position], in place."""
        self.add_op("embed_position", {"x": x, "weight": weight}, channel=channel)

    def norm(
        self,
        x: View,
        gain: Weight | None,
        eps: float,
        *,
        bias: Weight | None = None,
        kind: str = "rms",
        size: int = 0,
    ) -> View:
        y = self.new("h", x.rows, x.cols)
        self.add_op("norm", {"x": x, "y": y, "gain": gain, "bias": bias}, eps=eps, kind=kind, size=size)
        return y

    def add(self, x: View, r: View, scale: float = 1.0) -> None:
        """x += scale * r, in place."""
        self.add_op("add", {"x": x, "r": r}, scale=scale)

    def all_reduce(self, x: View) -> None:
        """x = the sum of x over the devices of a tensor-parallel model, in place."""
        self.add_op("all_reduce", {"x": x})

    def mul(self, x: View, r: View) -> None:
        """x *= r, in place; one column of r covers x.cols / r.cols columns of x."""
        self.add_op("mul", {"x": x, "r": r})

    def scale(self, x: View, by: float) -> None:
        """x *= by, in place; no op if `by` is 1."""
        if by != 1.0:
            self.add_op("scale", {"x": x}, by=by)

    def softcap(self, x: View, cap: float) -> None:
        """x = cap * tanh(x / cap), in place; no op if `cap` is 0."""
        if cap:
            self.add_op("softcap", {"x": x}, cap=cap)

    def clamp(self, x: View, limit: float) -> None:
        """x = min(max(x, -limit), limit), in place; no op if `limit` is 0."""
        if limit:
            self.add_op("clamp", {"x": x}, limit=limit)

    def unary(self, x: View, act: str) -> None:
        """x = act(x), in place."""
        self.add_op("unary", {"x": x}, act=act)

    def xielu(self, x: View, alpha: Weight) -> None:
        """x = xIELU(x) with the parameters alpha [4], in place."""
        self.add_op("xielu", {"x": x, "alpha": alpha})

    def temperature(self, x: View, by: float, length: int) -> None:
        """x *= 1 + by * ln(1 + (position + 1) // length), in place."""
        self.add_op("temperature", {"x": x}, by=by, length=length)

    def linear(
        self, x: View, weight: Weight, name: str = "y", bias: Weight | None = None, *, dtype: str = ""
    ) -> View:
        y = self.new(name, x.rows, weight.rows, dtype=dtype)  # [T, out]
        self.add_op("linear", {"y": y, "x": x, "weight": weight, "bias": bias})
        return y

    def router(
        self,
        logits: View,
        n_used: int,
        *,
        gate: str,
        normalize: bool = False,
        scale: float = 1.0,
        bias: Weight | None = None,
        gain: Weight | None = None,
        n_groups: int = 1,
        n_groups_used: int = 1,
    ) -> tuple[View, View]:
        """Chooses `n_used` experts for each row. Returns (ids, probs), both [T, n_used]."""
        ids = self.new("expert_ids", logits.rows, n_used, dtype=F32)
        probs = self.new("expert_probs", logits.rows, n_used)
        operands: dict[str, Operand | None] = {"ids": ids, "probs": probs, "logits": logits}
        operands |= {"bias": bias, "gain": gain}
        groups: dict[str, Attr] = {"n_groups": n_groups, "n_groups_used": n_groups_used}
        self.add_op("router", operands, gate=gate, normalize=int(normalize), scale=scale, **groups)
        return ids, probs

    def linear_experts(
        self, x: View, ids: View, weight: Weight, name: str, bias: Weight | None = None
    ) -> View:
        y = self.new(name, x.rows, ids.cols * weight.shape[1])  # [T, U*out]
        self.add_op("linear_experts", {"y": y, "x": x, "ids": ids, "weight": weight, "bias": bias})
        return y

    def combine(self, x: View, probs: View) -> View:
        y = self.new("moe", x.rows, x.cols // probs.cols)  # [T, C]
        self.add_op("combine", {"y": y, "x": x, "probs": probs})
        return y

    def rope(
        self,
        x: View,
        fine: Weight,
        coarse: Weight,
        *,
        head_dim: int,
        dim: int,
        style: str,
        offset: int = 0,
        channel: int = 0,
    ) -> None:
        """Rotates x by its positions, in place."""
        operands: dict[str, Operand | None] = {"x": x, "fine": fine, "coarse": coarse}
        sizes: dict[str, Attr] = {"head_dim": head_dim, "dim": dim, "offset": offset}
        self.add_op("rope", operands, style=style, channel=channel, **sizes)

    def kv_write(self, k: View, v: View | None, state: StateRef) -> None:
        """Writes keys and values to a state group, and to its tail if the group has two tiers."""
        for tier in filter(None, (state, self._tail(state))):
            self.add_op("kv_write", {"k": k, "v": v, "state": tier})

    def _tail(self, state: StateRef) -> StateRef | None:
        name = tail_of(state.group)
        return StateRef(name, state.layer) if any(s.name == name for s in self.states) else None

    def attention(
        self,
        q: View,
        state: StateRef,
        *,
        n_heads: int,
        n_kv_heads: int,
        v_dim: int,
        scale: float,
        mask: str = "causal",
        window: int = 0,
        softcap: float = 0.0,
        sinks: Weight | None = None,
        bias: Weight | None = None,
    ) -> View:
        """Attention over the KV cache; a group with two tiers gives its recent rows from its tail."""
        y = self.new("attn", q.rows, n_heads * v_dim)  # [T, H*D]
        states: dict[str, Operand | None] = {"state": state, "tail": self._tail(state)}
        operands: dict[str, Operand | None] = {"y": y, "q": q, "sinks": sinks, "bias": bias, **states}
        attrs: dict[str, Attr] = {"mask": mask, "window": window, "softcap": softcap}
        self.add_op("attention", operands, n_heads=n_heads, n_kv_heads=n_kv_heads, scale=scale, **attrs)
        return y

    def attend_rows(
        self,
        q: View,
        *,
        k: View,
        v: View,
        n_heads: int,
        n_kv_heads: int,
        scale: float,
        mask: str = "full",
        window: int = 0,
        bias: Weight | None = None,
    ) -> View:
        """Attention over the step's rows of the same sequence: all rows, those up to the row (`mask` causal),
        or `window` / 2 on either side (symmetric)."""
        y = self.new("attn", q.rows, v.cols // n_kv_heads * n_heads)  # [T, H*D]
        operands: dict[str, Operand | None] = {"y": y, "q": q, "k": k, "v": v, "bias": bias}
        attrs: dict[str, Attr] = {"mask": mask, "window": window}
        self.add_op("attend_rows", operands, n_heads=n_heads, n_kv_heads=n_kv_heads, scale=scale, **attrs)
        return y

    def glu(self, gate: View, up: View, act: str) -> View:
        y = self.new("ffn", gate.rows, gate.cols)  # [T, F]
        self.add_op("glu", {"y": y, "gate": gate, "up": up}, act=act)
        return y

    def conv1d(
        self, x: View, weight: Weight, *, state: StateRef, act: str = "none", bias: Weight | None = None
    ) -> View:
        y = self.new("conv", x.rows, x.cols)  # [T, C]
        self.add_op("conv1d", {"y": y, "x": x, "weight": weight, "bias": bias, "state": state}, act=act)
        return y

    def scan_mamba2(
        self,
        x: View,
        *,
        b: View,
        c: View,
        dt: View,
        state: StateRef,
        n_groups: int,
        a: Weight,
        d: Weight | None = None,
        dt_bias: Weight | None = None,
    ) -> View:
        y = self.new("scan", x.rows, x.cols)  # [T, H*P]
        views: dict[str, Operand | None] = {"y": y, "x": x, "b": b, "c": c, "dt": dt}
        self.add_op(
            "scan_mamba2", {**views, "a": a, "d": d, "dt_bias": dt_bias, "state": state}, n_groups=n_groups
        )
        return y

    def scan_delta(
        self,
        q: View,
        *,
        k: View,
        v: View,
        dt: View,
        beta: View,
        state: StateRef,
        n_key_heads: int,
        scale: float,
        a: Weight,
        dt_bias: Weight | None = None,
    ) -> View:
        y = self.new("scan", v.rows, v.cols)  # [T, H*V]
        views: dict[str, Operand | None] = {"y": y, "q": q, "k": k, "v": v, "dt": dt, "beta": beta}
        attrs: dict[str, Attr] = {"n_key_heads": n_key_heads, "scale": scale}
        self.add_op("scan_delta", {**views, "a": a, "dt_bias": dt_bias, "state": state}, **attrs)
        return y

    def token_shift(self, x: View, lerp: Weight, *, state: StateRef, part: int = 0) -> View:
        """x, moved towards the row before it by each row of lerp; the state's `part` holds the last row."""
        y = self.new("shift", x.rows, lerp.rows * lerp.cols)  # [T, rows of lerp * C]
        self.add_op("token_shift", {"y": y, "x": x, "lerp": lerp, "state": state}, part=part)
        return y

    def scan_rwkv6(
        self,
        r: View,
        *,
        w: View,
        k: View,
        v: View,
        state: StateRef,
        n_heads: int,
        u: Weight | None = None,
    ) -> View:
        y = self.new("scan", r.rows, r.cols)  # [T, H*D]
        views: dict[str, Operand | None] = {"y": y, "r": r, "w": w, "k": k, "v": v}
        self.add_op("scan_rwkv6", {**views, "u": u, "state": state}, n_heads=n_heads)
        return y

    def scan_rwkv7(
        self,
        r: View,
        *,
        w: View,
        k: View,
        v: View,
        a: View,
        state: StateRef,
        n_heads: int,
        k_k: Weight,
        k_a: Weight,
    ) -> View:
        y = self.new("scan", v.rows, v.cols)  # [T, H*D]
        views: dict[str, Operand | None] = {"y": y, "r": r, "w": w, "k": k, "v": v, "a": a}
        self.add_op("scan_rwkv7", {**views, "k_k": k_k, "k_a": k_a, "state": state}, n_heads=n_heads)
        return y

    def bonus_rwkv7(
        self, x: View, *, r: View, k: View, v: View, a: View, n_heads: int, k_a: Weight, r_k: Weight
    ) -> None:
        """x += v * sum(r * r_k * key) for each head, in place."""
        views: dict[str, Operand | None] = {"x": x, "r": r, "k": k, "v": v, "a": a}
        self.add_op("bonus_rwkv7", {**views, "k_a": k_a, "r_k": r_k}, n_heads=n_heads)

    def linear_heads(self, x: View, weight: Weight, name: str = "y") -> View:
        """Multiplies each head by its own matrix; columns of a head beyond the matrix pass unchanged."""
        n_heads, n_out, n_in = weight.shape
        y = self.new(name, x.rows, x.cols + n_heads * (n_out - n_in))  # [T, H * (out + unchanged columns)]
        self.add_op("linear_heads", {"y": y, "x": x, "weight": weight})
        return y

    def concat(self, a: View, b: View, name: str = "y") -> View:
        y = self.new(name, a.rows, a.cols + b.cols)
        self.add_op("concat", {"y": y, "a": a, "b": b})
        return y

    def length(self, x: View, size: int = 0) -> View:
        y = self.new("length", x.rows, x.cols // size if size else 1)  # [T, groups]
        self.add_op("length", {"y": y, "x": x}, size=size)
        return y

    def mix(self, x: View, coefs: View, size: int) -> View:
        """y[i] = sum over j of coefs[i, j] * x[j], in groups of `size` columns."""
        y = self.new("mix", x.rows, coefs.cols * size * size // x.cols)  # [T, N*size]
        self.add_op("mix", {"y": y, "x": x, "coefs": coefs}, size=size)
        return y

    def affine(self, x: View, weight: Weight, bias: Weight | None = None) -> View:
        y = self.new("affine", x.rows, x.cols)
        self.add_op("affine", {"y": y, "x": x, "weight": weight, "bias": bias})
        return y

    def cutoff(self, x: View, deviations: float) -> None:
        """x = max(x - mean - deviations * std, 0), in place."""
        self.add_op("cutoff", {"x": x}, deviations=deviations)

    def gather_rows(self, x: View) -> View:
        y = self.new("out", "O", x.cols, dtype=x.dtype)  # [O, C]
        self.add_op("gather_rows", {"y": y, "x": x})
        return y

    def pool(self, x: View, kind: str) -> View:
        """Pools the rows of each output's sequence: their mean, the first row (cls) or the last row."""
        y = self.new("pooled", "O", x.cols)  # [O, C]
        self.add_op("pool", {"y": y, "x": x}, kind=kind)
        return y

    def emit(self, x: View) -> None:
        """Returns the rows of x [O, C] as the step's result."""
        self.add_op("emit", {"x": x})

    def sample(self, logits: View, tokens: str) -> None:
        """Samples a token id for each output; the feature `candidates` adds the largest logits."""
        self.add_op("sample", {"logits": logits, "tokens": StateRef(tokens)})
        if "candidates" in self.key.features:
            self.add_op("candidates", {"logits": logits})
