"""`camelid info`: architecture, size and memory of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource

from camelid.cli.command import BACKEND_NAMES, model_argument, say, subcommand
from camelid.cli.gpu_flag import gpu_layers_option
from camelid.cli.info_memory import memory_facts, memory_lines, notes
from camelid.cli.info_record import Record, Report, fact_lines, read_record
from camelid.loading.choose import likely_gpu
from camelid.loading.model_file import ModelFile
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model, bytes_at, count_parameters
from camelid.model.spec import ModelSpec, RopeSpec
from camelid.plan.weights import Weight

SIZE_TYPES = ("f16", "q4_0")
STORED = "as stored"
FORECAST = ("context", "backend", "gpu_layers", "parallel")  # options of --memory


@subcommand
@model_argument
@click.option("--memory", is_flag=True,
              help="Estimate memory use: weights, state, scratch; with -ngl by device.")  # fmt: skip
@click.option("-c", "--ctx-size", "context", type=click.IntRange(1), metavar="N",
              help="Context length for --memory. Default: the model's, at most 4096.")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1), default=LoadOptions().parallel, show_default=True,
              metavar="N", help="Parallel sequences for --memory.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKEND_NAMES), default=likely_gpu, metavar="NAME",
              help="Backend for --memory; no device is opened. Default: that of the GPU here.")  # fmt: skip
@gpu_layers_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_context
def command(
    ctx: click.Context, model: str, memory: bool, context: int | None, parallel: int, backend: str,
    gpu_layers: int | None, as_json: bool,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:  # fmt: skip
    """Show architecture, size and memory of a model. Reads no weights; `camelid inspect` lists the tensors.

    MODEL is a GGUF file, a Hugging Face directory, a hub id, cria, or a preset without a file: 8b and 70b are
    Llama 3. A file or directory of the same name takes precedence.

    Size at 4 bits: q4_0 for every matrix, embeddings included (4.5 bits per weight); norms and biases f32.
    """
    if not memory:
        _check_unused(ctx)
    if is_preset(model):
        facts, ways = preset_facts(PRESETS[model]), preset_models(PRESETS[model])
    else:
        record = read_record(model)
        file = record.loaded()
        facts, ways = file_facts(record, file), {STORED: file.model}
    if memory:
        options = LoadOptions(backend=backend, gpu_layers=gpu_layers, context=context, parallel=parallel)
        facts["memory"] = memory_facts(ways, options)
    if as_json:
        click.echo(json.dumps(facts))
        return
    show(facts)


def show(facts: Report) -> None:
    """Prints the facts as text, then the memory forecast."""
    memory = facts.get("memory")
    for text in fact_lines({name: value for name, value in facts.items() if name != "memory"}):
        click.echo(text)
    if memory:
        for text in memory_lines(memory):
            click.echo(text)
        for note in notes(memory):
            say(note)


def _check_unused(ctx: click.Context) -> None:
    for name in FORECAST:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            options = next(p.opts for p in ctx.command.params if p.name == name)
            option = next(option for option in options if option.startswith("--"))
            raise click.UsageError(f"{option} needs --memory")


def is_preset(name: str) -> bool:
    """True for the name of a preset, unless a file or directory has it."""
    return name in PRESETS and not Path(name).exists()


def file_facts(record: Record, file: ModelFile) -> Report:
    """Report of a GGUF file or a directory."""
    return {
        "name": file.model.spec.name,
        "path": file.name,
        "file_bytes": file.n_bytes,
        **spec_facts(file.model.spec, file.model.weights.values()),
        **record.facts(record.tensors()),
        "license": file.gguf.get("general.license", str, default="not stated"),
    }


def preset_facts(spec: ModelSpec) -> Report:
    """Report of a model without a file."""
    return {"name": spec.name, **spec_facts(spec, bare_model(spec, "f16").weights.values())}


def preset_models(spec: ModelSpec) -> dict[str, Model]:
    """The preset with weights of each of `SIZE_TYPES`."""
    return {name: bare_model(spec, name) for name in SIZE_TYPES}


def spec_facts(s: ModelSpec, weights: Iterable[Weight]) -> Report:
    """Report of any model, with or without a file."""
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


def _expert_facts(s: ModelSpec) -> Report:
    if s.experts is None:
        return {}
    e = s.experts
    facts: Report = {"experts": e.n_experts, "experts_used": e.n_used, "expert_ffn_size": e.ffn_size}
    return facts | ({"shared_ffn_size": e.shared_size} if e.shared_size else {})


def _window_facts(s: ModelSpec) -> Report:
    windows = [layer.window for layer in s.layers if layer.window]
    return {"window": max(windows), "windowed_layers": len(windows)} if windows else {}


def rope_facts(rope: RopeSpec, name: str, spec: ModelSpec) -> Report:
    """Report of one RoPE: kind (norm rotates neighbours, neox halves), width and number of layers."""
    s, layers = rope.scaling, [layer for layer in spec.layers if layer.rope == name]
    return {
        "kind": rope.style,
        "theta": rope.theta,
        "dim": rope.dim,
        "head_dim": min((spec.of_layer(i).head_dim for i in layers), default=spec.head_dim),
        "layers": len(layers),
        "factors": len(rope.factors),
        "scaling": s and {"kind": s.kind, "factor": s.factor, "original_context": s.original_context},
    }
