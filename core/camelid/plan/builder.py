"""Builds plans: each method appends one op, checked against its row, and returns what it writes."""

from __future__ import annotations

from camelid.plan.ops import OPS, check_op
from camelid.plan.plan import Attr, Buffer, Op, Operand, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import ProgramKey
from camelid.plan.weights import Weight


class PlanBuilder:
    """Collects ops for one entry. `plan.linear(x, w)` reads like the maths it stands for."""

    def __init__(self, key: ProgramKey, states: tuple[StateSpec, ...], *, n_channels: int = 1) -> None:
        self.key = key
        self.states = states
        self.n_channels = n_channels
        self._ops: list[Op] = []
        self._names: dict[str, int] = {}

    def add_op(self, name: str, operands: dict[str, Operand], **attrs: Attr) -> None:
        row = OPS[name]
        ordered = tuple((role, operands[role]) for role in row.roles)
        self._ops.append(check_op(Op(name, ordered, tuple((a, attrs[a]) for a in row.attrs))))

    def new(self, name: str, rows: str, cols: int) -> View:
        """A fresh activation `[rows, cols]`; a repeated name gets a number."""
        n = self._names[name] = self._names.get(name, -1) + 1
        return View(Buffer(f"{name}.{n}" if n else name, rows, cols), cols)

    def build(self, stage: str = "main") -> Plan:
        return Plan(
            key=self.key,
            stages=(Stage(stage, tuple(self._ops)),),
            states=self.states,
            n_channels=self.n_channels,
        )

    def tables(self, group: str) -> None:
        self.add_op("tables", {"state": StateRef(group)})

    def copy(self, group: str) -> None:
        self.add_op("copy", {"state": StateRef(group)})

    def embed(self, weight: Weight, tokens: str) -> View:
        y = self.new("x", "T", weight.cols)  # [T, C]
        self.add_op("embed", {"y": y, "weight": weight, "tokens": StateRef(tokens)})
        return y

    def norm(self, x: View, gain: Weight, eps: float) -> View:
        y = self.new("h", x.rows, x.cols)
        self.add_op("norm", {"x": x, "y": y, "gain": gain}, eps=eps)
        return y

    def add(self, x: View, r: View) -> None:
        """x += r, in place."""
        self.add_op("add", {"x": x, "r": r})

    def linear(self, x: View, weight: Weight, name: str = "y") -> View:
        y = self.new(name, x.rows, weight.rows)  # [T, out]
        self.add_op("linear", {"y": y, "x": x, "weight": weight})
        return y

    def rope(self, x: View, fine: Weight, coarse: Weight, *, head_dim: int, dim: int, style: str) -> None:
        """Rotates x in place."""
        operands: dict[str, Operand] = {"x": x, "fine": fine, "coarse": coarse}
        self.add_op("rope", operands, head_dim=head_dim, dim=dim, style=style)

    def kv_write(self, k: View, v: View, state: StateRef) -> None:
        self.add_op("kv_write", {"k": k, "v": v, "state": state})

    def attention(
        self, q: View, state: StateRef, *, n_heads: int, n_kv_heads: int, scale: float, mask: str = "causal"
    ) -> View:
        y = self.new("attn", q.rows, q.cols)  # [T, H*D]
        sizes = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": q.cols // n_heads}
        self.add_op("attention", {"y": y, "q": q, "state": state}, **sizes, scale=scale, mask=mask)
        return y

    def glu(self, gate: View, up: View, act: str) -> View:
        y = self.new("ffn", gate.rows, gate.cols)  # [T, F]
        self.add_op("glu", {"y": y, "gate": gate, "up": up}, act=act)
        return y

    def gather_rows(self, x: View) -> View:
        y = self.new("out", "O", x.cols)  # [O, C]
        self.add_op("gather_rows", {"y": y, "x": x})
        return y

    def sample(self, logits: View, tokens: str) -> None:
        self.add_op("sample", {"logits": logits, "tokens": StateRef(tokens)})
