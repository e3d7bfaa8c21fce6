"""The context of blocks while a model is lowered: the plan being built, the spec, the weights by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeAlias

from camelid.model.rope import axis_name
from camelid.model.spec import LayerSpec, ModelSpec, RopeSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import StateRef, View
from camelid.plan.weights import Weight

OF_QUERIES = ".q"  # ending of the name of a rotation for queries alone
RECURRENT = "recurrent"  # state group of layers with one slot per sequence
TOKENS = "tokens"  # state group of sampled ids
Tensors: TypeAlias = tuple[tuple[str, int], ...]  # state tensors of a layer: (name, floats per row)


@dataclass(frozen=True, slots=True)
class Lowering:
    """A plan under construction. Weights are named as in GGUF, without `.weight`; biases end in `.bias`."""

    plan: PlanBuilder
    spec: ModelSpec
    weights: Mapping[str, Weight]
    layer_inputs: View | None = None  # [T, layers*P], if the model embeds tokens for every layer
    router: View | None = None  # [T, E], if the layer's router read other rows than its experts
    side: View | None = None  # [T, C * (1 + deepstack)]: embeddings of images, in a program for their rows
    earlier: dict[str, View] = field(default_factory=dict[str, View])  # views that later layers read
    cuts: tuple[int, ...] = ()  # layers before which a new stage begins; n_layers is the head

    def stack(self, prefix: str) -> Lowering:
        """The context of one of two stacks: its weights lose the prefix `enc.` or `dec.`."""
        return replace(self, weights={name.removeprefix(prefix): w for name, w in self.weights.items()})

    def layer(self, i: int) -> LayerSpec:
        return self.spec.layers[i]

    def state(self, i: int) -> StateRef:
        """The state that layer `i` reads: its own, or that of the layer it shares keys and values with."""
        layer = self.spec.layers[i]
        return StateRef(layer.state_group, i if layer.kv_layer < 0 else layer.kv_layer)

    def linear(self, x: View, name: str, out: str = "y", *, dtype: str = "") -> View:
        """weight @ x, plus the bias if the model has one, stored in `dtype` (default: the plan's dtype)."""
        return self.plan.linear(x, self.weights[name], out, self.weights.get(f"{name}.bias"), dtype=dtype)

    def summed(self, x: View) -> View:
        """The sum of x over the devices of a tensor-parallel model."""
        if self.spec.tensor_parallel > 1:
            self.plan.all_reduce(x)
        return x

    @staticmethod
    def split(x: View, *sizes: int) -> tuple[View, ...]:
        """Splits x into neighbouring views of these numbers of columns."""
        return tuple(x.slice(end - size, size) for end, size in zip(accumulate(sizes), sizes, strict=True))

    def norm(self, x: View, name: str, size: int = 0, *, eps: float = 0.0) -> View:
        """Norms x with the weights `name`, over groups of `size` columns (0: all); `eps` 0 is the model's."""
        gain, bias, kind = self.weights[name], self.weights.get(f"{name}.bias"), self.spec.norm_kind
        return self.plan.norm(x, gain, eps or self.spec.norm_eps, bias=bias, kind=kind, size=size)

    def norm_if(self, x: View, name: str, size: int = 0) -> View:
        """Norms x with the weights `name`, or returns x if the model has no such norm."""
        return self.norm(x, name, size) if name in self.weights else x

    def rope(self, x: View, name: str, head_dim: int, offset: int = 0) -> None:
        """Rotates the heads of x in place by the RoPE tables `name`; no op if `name` is ""."""
        if not name:
            return
        spec = self.spec.ropes[name]
        sizes = {"head_dim": head_dim, "dim": spec.dim, "offset": offset}
        for table, channel in self._tables(name, spec):
            tables = (self.weights[f"{table}.{part}"] for part in ("fine", "coarse"))
            self.plan.rope(x, *tables, style=spec.style, channel=channel, **sizes)

    def _tables(self, name: str, spec: RopeSpec) -> list[tuple[str, int]]:
        """(name of the tables, position channel) of each rotation: one per axis where a row has several."""
        if not spec.axes or self.plan.n_channels == 1:
            return [(name, 0)]
        return [(axis_name(name, axis), axis) for axis in sorted({*spec.axes})]


Block: TypeAlias = Callable[[Lowering, View, int], View]  # (context, normed input [T, C], layer) -> [T, C]
