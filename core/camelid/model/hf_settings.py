"""config.json with its row of `HF_ROWS`, and the numbers that several parts of its metadata need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model.arch import Arch
from camelid.model.archs import ARCHS
from camelid.model.hf_rows import HfRow
from camelid.model.spec import MAX_HEAD_DIM

Metadata: TypeAlias = dict[str, MetadataValue]


SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"


# One of these keys is the number of experts.
EXPERTS = (
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "moe_num_primary_experts",
    "ffn_config.moe_num_experts",
)  # fmt: skip


MAX_STREAMS = 64
HEADLESS = ("Model", "ForMaskedLM")  # endings of classes without a ranking head


MAX_EXPERTS = 1 << 12  # published models have at most 512


class Stack(NamedTuple):
    """Layers of one kind: the prefix of a layer's published tensors, their names, the number of layers."""

    layer: str
    names: Mapping[str, str]
    n_layers: int


@dataclass(frozen=True)
class HfSettings:
    """config.json with its `HfRow`, and the numbers that several parts need. No slots: cached properties."""

    config: Config
    row: HfRow
    n_tensors: int  # bound of n_layers and n_experts: a false count is refused before it costs memory
    n_labels: int = 0  # rows of the ranking head in the directory

    @property
    def arch(self) -> Arch:
        return ARCHS[self.row.arch]

    def count(self, key: str, default: int | None = None) -> int:
        """An integer by its GGUF key, of a list of numbers the largest.

        Raises ModelFormatError if it is absent and has no default.
        """
        if key in self.row.derived:
            value = self.row.derived[key](self.config)
            return max(cast(list[int], value if isinstance(value, list) else [value]), default=1)
        name = self.row.keys[key]
        return self.config.count(name) if default is None else self.config.count(name, default)

    @cached_property
    def n_layers(self) -> int:
        return self.config.count(self.row.keys["block_count"], most=self.n_tensors)

    @cached_property
    def n_heads(self) -> int:
        return self.count("attention.head_count")

    @cached_property
    def n_kv_heads(self) -> int:
        shares_all = self.config.flag("multi_query", False)
        if shares_all and not self.config.flag("new_decoder_architecture", False):
            return 1
        return self.count("attention.head_count_kv", self.n_heads)

    @cached_property
    def head_dim(self) -> int:
        default = max(self.count("embedding_length") // self.n_heads, 1)
        name = self.row.keys.get("attention.key_length", "head_dim")
        return self.config.count(name, min(default, MAX_HEAD_DIM), most=MAX_HEAD_DIM)

    @cached_property
    def n_experts(self) -> int:
        most = max(self.n_tensors // self.n_layers, 1) if self.counts_experts else MAX_EXPERTS
        stated = (self.config.count(name, least=0, most=most) for name in EXPERTS if self.config.has(name))
        return next(stated, 0)

    @property
    def n_streams(self) -> int:
        """Streams of altup; 1 in other models."""
        return self.config.count("altup_num_inputs", 1, most=MAX_STREAMS)

    @property
    def counts_experts(self) -> bool:
        """True if the published tensors are one per expert, not stacks of experts."""
        return any("{e}" in name for name in self.row.names.values())

    @cached_property
    def names(self) -> Mapping[str, str]:
        """GGUF name -> published name of a layer's tensors, MLP included."""
        mlp, row = "experts" if self.n_experts else self.arch.mlp, self.row
        own: Mapping[str, str] = row.named_by(self.config) if row.named_by else {}
        return {**row.names, **own, **row.mlp_names.get(mlp, {})}

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of layers, in the order of the architecture's `stacks`."""
        row, layers = self.row, Stack(self.row.layer, self.names, self.n_layers)
        if row.encoder is None:
            return (layers,)
        n_decoder = self.count("decoder_block_count")
        if n_decoder > self.n_tensors:
            raise unsupported("decoder layers", n_decoder, (f"at most {self.n_tensors}, as tensors",))
        encoder = Stack(row.encoder_layer, row.encoder(self.config), self.n_layers)
        return encoder, layers._replace(n_layers=n_decoder)

    @cached_property
    def layer_types(self) -> list[str]:
        """The kind of each layer; [] if config.json states none."""
        kinds = self.row.layer_types
        return kinds(self.config, self.n_layers) if kinds else self.config.texts("layer_types")

    @cached_property
    def is_ranking(self) -> bool:
        """True for a published class with a head that scores a text or a pair of texts.

        Jina's rerankers 1 are published as a class without a head.
        """
        classes = ("ForSequenceClassification", *(HEADLESS if self.n_labels else ()))
        return any(name.endswith(classes) for name in self.config.texts("architectures"))

    @property
    def outer(self) -> Mapping[str, str]:
        """GGUF name -> published name of the tensors outside layers."""
        return {**self.row.outer, **(self.row.ranking if self.is_ranking else {})}

    @cached_property
    def n_skipped(self) -> int:
        """Rows of the position table before a text's first position."""
        return self.config.count("pad_token_id", least=0) + 1 if self.row.counts_padding else 0

    @cached_property
    def is_tied(self) -> bool:
        return self.config.flag("tie_word_embeddings", self.row.is_tied)

    @cached_property
    def rope(self) -> Config:
        """The rotation of full attention: rope_parameters, or rope_scaling before transformers 5."""
        parameters = self.config.section("rope_parameters")
        parameters = parameters.section(FULL) if parameters.has(FULL) else parameters
        return parameters if parameters.values else self.config.section("rope_scaling")

    @cached_property
    def theta(self) -> float:
        name = self.row.keys.get("rope.freq_base", "rope_theta")
        default = self.config.number(name, 10000.0, above=1.0) * self.config.number(
            "rope_ratio", 1.0, above=0.0
        )
        return self.rope.number("rope_theta", default, above=1.0) * self._ntk_stretch

    @property
    def _ntk_stretch(self) -> float:
        """Factor of theta by a fixed NTK alpha (Hunyuan)."""
        key = self.row.keys.get("rope.scaling.alpha", "")
        dim = self.rope_dim
        has_alpha = self.rope.has(key) and dim > 2
        return self.rope.number(key, above=0.0) ** (dim / (dim - 2)) if has_alpha else 1.0

    @cached_property
    def rope_dim(self) -> int:
        if self.rope.text("rope_type", "") == "proportional":
            return self.head_dim  # its factors leave pairs unturned
        if self.config.has("rotary_dim"):
            return self.config.count("rotary_dim")
        share = self.config.number("partial_rotary_factor", 1.0, above=0.0, most=1.0)
        return int(self.head_dim * self.rope.number("partial_rotary_factor", share, above=0.0, most=1.0))


Pairs: TypeAlias = Iterator[tuple[str, MetadataValue]]


def unsupported(key: str, value: object, supported: Iterable[object]) -> UnsupportedModelError:
    shown = ", ".join(map(str, supported))
    return UnsupportedModelError(
        f"config.json: {key} is {value!r}, which is not supported; supported: {shown or 'null'}",
        kind=key,
        name=str(value),
    )
