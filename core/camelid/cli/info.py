"""`camelid info`: what a model is, how large, and how much memory it takes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from camelid.cli.fetching import local_model
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.cli.info_memory import memory_facts, memory_lines, notes
from camelid.cli.show import columns, line, printable, shown, size, sizes
from camelid.cli.verb import BACKEND_NAMES, model_argument, say, verb
from camelid.engine.programs import Limits
from camelid.errors import CamelidError, ModelFormatError
from camelid.loading.model_file import ModelFile, open_model
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model, bytes_at, count_parameters
from camelid.model.spec import ModelSpec, RopeSpec
from camelid.plan.weights import Weight
from camelid.text.tokenizers.hf.models import kind_of
from camelid.text.tokenizers.hf.values import mapping

SIZE_TYPES = ("f16", "q4_0")
STORED = "as stored"
FORECAST = ("context", "backend", "gpu_layers", "parallel")  # options that say nothing without --memory
Facts = dict[str, Any]


@verb
@model_argument
@click.option(
    "--memory",
    is_flag=True,
    help="Also what loading takes: weights, state, scratch; with -ngl on each device.",
)
@click.option("-c", "--ctx-size", "context", type=click.IntRange(1), metavar="N",
              help="For --memory: rows a sequence. Default: as `load` chooses, at most 4096.")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1), default=Limits().parallel, show_default=True,
              metavar="N", help="For --memory: sequences at once.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKEND_NAMES), default="webgpu", show_default=True,
              metavar="NAME", help="For --memory: whose rewrites to count; no device is opened.")  # fmt: skip
@gpu_layers_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object; sizes in bytes.")
@click.pass_context
def command(
    ctx: click.Context, model: str, memory: bool, context: int | None, parallel: int, backend: str,
    gpu_layers: int | None, as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Show what a model is; reads no weights. -v lists the tensors.

    MODEL is a GGUF file, a Hugging Face directory, cria, or one of the presets 8b and 70b: Llama 3, which
    needs no file. A file or directory of that name goes before the preset: info tells of what run would run.

    4 bits is q4_0 for every matrix, embeddings included: 4.5 bits a weight. Norms and biases are f32.
    """
    if not memory:
        _check_unused(ctx)
    file = None if is_preset(model) else open_named(model)
    facts = file_facts(file) if file else preset_facts(PRESETS[model])
    if memory:
        ways = {STORED: file.model} if file else preset_models(PRESETS[model])
        limits = Limits(parallel=parallel)
        facts["memory"] = memory_facts(ways, backend, gpu_layers, context=context, limits=limits)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for text in info_lines(facts, list_tensors(file) if verbose and file else []):
        click.echo(text)
    for note in notes(facts["memory"]) if memory else ():
        say(note)


def _check_unused(ctx: click.Context) -> None:
    for name in FORECAST:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            options = next(p.opts for p in ctx.command.params if p.name == name)
            option = next(option for option in options if option.startswith("--"))
            raise click.UsageError(f"{option} needs --memory")


def is_preset(name: str) -> bool:
    """Whether a name means a preset: it is one's, and there is no such file or directory here."""
    return name in PRESETS and not Path(name).exists()


def open_named(model: str) -> ModelFile:
    """The model of that name. The error for a name that is nothing at all names the presets too."""
    try:
        return asyncio.run(open_model(local_model(model)))
    except ModelFormatError as error:
        if error.facts.get("path") != model or _is_there(model):
            raise
        message = f"{error.message}; info also knows the presets {' and '.join(PRESETS)}"
        raise ModelFormatError(message, path=model) from error


def _is_there(name: str) -> bool:
    try:
        return name == "cria" or Path(name).exists()
    except (OSError, ValueError):  # a name too long, a folder that may not be searched
        return True


def file_facts(file: ModelFile) -> Facts:
    """A file's or directory's facts by name."""
    gguf = file.gguf
    return {
        "name": file.model.spec.name,
        "path": file.name,
        "file_bytes": file.n_bytes,
        **spec_facts(file.model.spec, file.model.weights.values()),
        "types": tensor_types(file),
        "tokenizer": tokenizer_kind(file),
        "chat_template": file.template is not None,
        "license": gguf.get("general.license", str, default="not stated"),
    }


def preset_facts(spec: ModelSpec) -> Facts:
    """The same for a model that is known without a file."""
    return {"name": spec.name, **spec_facts(spec, bare_model(spec, "f16").weights.values())}


def preset_models(spec: ModelSpec) -> dict[str, Model]:
    """The preset's weights in each of the types that its size is told for."""
    return {name: bare_model(spec, name) for name in SIZE_TYPES}


def spec_facts(s: ModelSpec, weights: Iterable[Weight]) -> Facts:
    """What holds with and without a file."""
    weights = list(weights)
    return {
        "arch": s.arch,
        "parameters": count_parameters(weights),
        **{f"{name}_bytes": bytes_at(weights, name) for name in SIZE_TYPES},
        "layers": s.n_layers,
        "hidden_size": s.hidden_size,
        "heads": s.n_heads,
        "kv_heads": s.n_kv_heads,
        "gqa_ratio": s.n_heads // s.n_kv_heads,
        "head_dim": s.head_dim,
        "ffn_size": s.ffn_size,
        **_expert_facts(s),
        "vocab_size": s.vocab_size,
        "tied_output": s.is_tied,
        "context_length": s.context_length,
        **_window_facts(s),
        "rope": [rope_facts(rope, name, s) for name, rope in s.ropes.items()],
        "norm_eps": s.norm_eps,
    }


def _expert_facts(s: ModelSpec) -> Facts:
    if s.experts is None:
        return {}
    e = s.experts
    facts: Facts = {"experts": e.n_experts, "experts_used": e.n_used, "expert_ffn_size": e.ffn_size}
    return facts | ({"shared_ffn_size": e.shared_size} if e.shared_size else {})


def _window_facts(s: ModelSpec) -> Facts:
    windows = [layer.window for layer in s.layers if layer.window]
    return {"window": max(windows), "windowed_layers": len(windows)} if windows else {}


def rope_facts(rope: RopeSpec, name: str, spec: ModelSpec) -> Facts:
    """One rotation: its kind (norm turns neighbours, neox halves), how much of a head, of which layers."""
    s = rope.scaling
    return {
        "kind": rope.style,
        "theta": rope.theta,
        "dim": rope.dim,
        "head_dim": spec.head_dim,
        "layers": sum(layer.rope == name for layer in spec.layers),
        "factors": len(rope.factors),
        "scaling": s and {"kind": s.kind, "factor": s.factor, "original_context": s.original_context},
    }


def tokenizer_kind(file: ModelFile) -> str:
    """What GGUF calls it, or tokenizer.json where GGUF has no word; "none"; or why it cannot be read."""
    if not file.checkpoint.no_tokenizer or not file.directory:
        return file.gguf.get("tokenizer.ggml.model", str, default="none")
    try:
        file.tokenizer()
    except CamelidError as error:
        return f"unsupported: {error.message}"
    return kind_of(mapping(file.directory.tokenizer.get("model"), "model"))


def tensor_types(file: ModelFile) -> dict[str, int]:
    """Bytes by tensor type, as they are stored."""
    found: Counter[str] = Counter()
    for tensor in file.checkpoint.tensors.values():
        found[tensor.stored_type] += sum(part.n_bytes for part in tensor.parts)
    return dict(found)


def info_lines(facts: Facts, tensors: list[Weight]) -> Iterator[str]:
    """The facts as people read them."""
    for name, value in facts.items():
        if name != "memory":
            yield line(LABELS.get(name, name), FORMS.get(name, shown)(value))
    if tensors:
        yield from columns(tensor_row(t) for t in tensors)
    if "memory" in facts:
        yield from memory_lines(facts["memory"])


def rope_text(ropes: list[Facts]) -> str:
    """The rotations in words."""
    return "; ".join(map(_rope_text, ropes)) or "none"


def _rope_text(rope: Facts) -> str:
    text = f"{rope['kind']}, theta {rope['theta']:,.10g}, {rope['dim']} of {rope['head_dim']}"
    scaling = rope["scaling"]
    return (
        f"{text}, {rope['layers']} layers"
        + (", with factors" if rope["factors"] else "")
        + (f", {scaling['kind']} scaling by {scaling['factor']:g}" if scaling else "")
    )


def list_tensors(file: ModelFile) -> list[Weight]:
    """Every tensor by its GGUF name, as it is stored."""
    return [replace(t, name=name) for name, t in file.checkpoint.tensors.items()]


def tensor_row(tensor: Weight) -> tuple[str, ...]:
    """Name, stored type, shape, bytes."""
    n_bytes = sum(part.n_bytes for part in tensor.parts)
    shape = "x".join(map(str, tensor.shape))
    return printable(tensor.name), tensor.stored_type, shape, f"{n_bytes:,} bytes"


# Facts that people read otherwise than JSON has them.
LABELS = {"file_bytes": "file_size", "f16_bytes": "size_at_f16", "q4_0_bytes": "size_at_4_bits"}
FORMS: dict[str, Callable[[Any], str]] = {"rope": rope_text, "types": sizes, **dict.fromkeys(LABELS, size)}
