"""Adapters of mlx-lm: adapter_config.json with `lora_parameters`, and adapters.safetensors.

The scale is stated itself; `lora_a` is [in, rank] and `lora_b` [rank, out], or stacks of experts
[experts, rank, in] and [experts, out, rank]. Form of mlx-lm 0.32.
"""

from __future__ import annotations

from collections.abc import Iterator

from camelid.errors import UnsupportedModelError
from camelid.formats.adapters.pairs import AdapterFile, Factor, make_pair, pair_up, refuse
from camelid.formats.json_text import parse_object
from camelid.formats.safetensors import Safetensors
from camelid.formats.settings import Config
from camelid.formats.source import located

CONFIG, WEIGHTS = "adapter_config.json", "adapters.safetensors"
ENDINGS = (".lora_a", ".lora_b")
MAX_RANK = 1 << 16
MERGE = "merge it into its base with mlx_lm.fuse"


def read_mlx_lm(config: bytes, weights: Safetensors, path: str) -> AdapterFile:
    """The adapter of adapter_config.json's text and the header of its weights; `path` is for errors.

    Raises ModelFormatError for malformed settings and factors that do not fit, UnsupportedModelError for
    DoRA, whole trained weights, and tensors that are no factors.
    """
    values = parse_object(config, path=path, what=CONFIG)
    settings = Config(values, f"{path}: {CONFIG}" if path else CONFIG)
    kind = settings.text("fine_tune_type", "lora")
    if kind != "lora":
        refuse(settings.path, "fine_tune_type", kind, f"supported is lora; {MERGE}")
    parameters = settings.section("lora_parameters")
    scale, rank = parameters.number("scale"), parameters.count("rank", most=MAX_RANK)
    factors = [Factor(t.name, t.type, t.shape, t.offset) for t in weights.tensors.values()]
    for factor in factors:
        _check(factor, path)
    pairs = {
        name: make_pair(name, a, b, scale=scale, path=path, layout="columns" if len(a.shape) == 2 else "rows")
        for name, (a, b) in pair_up(factors, ENDINGS, path).items()
    }
    return AdapterFile(format="mlx-lm", path=path, pairs=pairs, facts=dict(_facts(settings, scale, rank)))


def _check(factor: Factor, path: str) -> None:
    if not factor.name.endswith(ENDINGS):
        what = "a magnitude of DoRA" if factor.name.endswith(".m") else "no factor of LoRA"
        message = f"tensor {factor.name} is {what}, which is not supported; {MERGE}"
        raise UnsupportedModelError(located(path, message), kind="tensor", name=factor.name, path=path)


def _facts(settings: Config, scale: float, rank: int) -> Iterator[tuple[str, str]]:
    yield "alpha", f"{scale * rank:g}"
    yield "scaling", f"{scale:g}, stated"
    if base := settings.values.get("model"):
        yield "base", str(base)[:200]
