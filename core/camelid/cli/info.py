"""`camelid info`: what a model file holds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import click

from camelid.cli.fetching import local_model
from camelid.cli.verb import model_argument, verb
from camelid.model.spec import ModelSpec
from camelid.opening import ModelFile, open_model


@verb
@model_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(model: str, as_json: bool, verbose: bool) -> None:
    """Show what a model file holds; reads no weights. -v lists the tensors."""
    file = asyncio.run(open_model(local_model(model)))
    facts = read_facts(file)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' '):<16}{shown(value)}")
    if verbose:
        for t in file.gguf.tensors.values():
            click.echo(f"{t.name:<32}{t.type:<8}{'x'.join(map(str, t.shape)):<16}{t.n_bytes:>14,} bytes")


def read_facts(file: ModelFile) -> dict[str, object]:
    """The file's facts by name."""
    s, gguf = file.model.spec, file.gguf
    return {
        "name": s.name,
        "path": file.name,
        "file_bytes": file.n_bytes,
        "arch": s.arch,
        "parameters": sum(w.rows * w.cols for w in file.model.weights.values()),
        "types": tensor_types(file),
        "layers": s.n_layers,
        "hidden_size": s.hidden_size,
        "heads": s.n_heads,
        "kv_heads": s.n_kv_heads,
        "gqa_ratio": s.n_heads // s.n_kv_heads,
        "head_dim": s.head_dim,
        "ffn_size": s.ffn_size,
        "vocab_size": s.vocab_size,
        "tied_output": s.is_tied,
        "context_length": s.context_length,
        "rope": rope_text(s),
        "norm_eps": s.norm_eps,
        "tokenizer": gguf.get("tokenizer.ggml.model", str, default="none"),
        "chat_template": file.template is not None,
        "license": gguf.get("general.license", str, default="not stated"),
    }


def rope_text(spec: ModelSpec) -> str:
    """The rotations in words."""
    texts = [
        f"{rope.style}, theta {rope.theta:g}, {rope.dim} of {spec.head_dim}"
        + (", with factors" if rope.factors else "")
        + (f", {rope.scaling.kind} scaling" if rope.scaling else "")
        for rope in spec.ropes.values()
    ]
    return "; ".join(texts) or "none"


def tensor_types(file: ModelFile) -> dict[str, int]:
    """Bytes by tensor type."""
    sizes: Counter[str] = Counter()
    for tensor in file.gguf.tensors.values():
        sizes[tensor.type] += tensor.n_bytes
    return dict(sizes)


def shown(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        sizes: dict[str, int] = value  # type: ignore[assignment]  # the only dict is tensor_types
        return ", ".join(f"{name} {n:,} bytes" for name, n in sizes.items())
    if isinstance(value, float):
        return f"{value:g}"
    # One line a fact, whatever a file's strings hold.
    return (
        f"{value:,}" if isinstance(value, int) else "".join(c if c.isprintable() else "?" for c in str(value))
    )
