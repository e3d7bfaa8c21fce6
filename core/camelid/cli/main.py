"""The group of subcommands. `camelid --help` imports none of their modules."""

from __future__ import annotations

from importlib import import_module

import click

from camelid.version import __version__

COMMANDS = {
    "run": "Answer one prompt, streamed to stdout.",
    "chat": "Chat with a model in the terminal.",
    "pull": "Download a model from Hugging Face.",
    "info": "Show a model's architecture, size and memory use.",
    "inspect": "List the settings and tensors of a model, supported or not.",
    "explain": "Print a model's plan: its ops, and the cost of one step.",
    "convert": "Convert a Hugging Face model to GGUF.",
    "quantize": "Quantize a model to a smaller GGUF.",
    "imatrix": "Collect an importance matrix for quantize from a text.",
    "adapter": "Show, convert, merge or compose LoRA adapters.",
    "tokenize": "Encode text as token ids.",
    "embed": "Print the embeddings of texts.",
    "rerank": "Sort documents by their relevance to a query.",
    "doctor": "Show the machine and its backends, and test every kernel.",
    "learn": "Show what was learnt from feedback, learn now, or take it back.",
    "bench": "Measure prefill and decode speed against this machine's limits.",
    "perplexity": "Measure a model's perplexity on a text.",
    "serve": "Serve models to OpenAI clients and others over HTTP.",
    "witness": "Check, show or replay a server's witness log.",
    "web": "Serve the web page, or write it with a model to one HTML file.",
}


class CommandGroup(click.Group):
    """A group that imports a subcommand from the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Subcommand names, in table order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The subcommand, or None for an unknown name."""
        return import_module(f"camelid.cli.{cmd_name}").command if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Writes the table's own help texts, so that --help imports no subcommand."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", message="camelid %(version)s")
def main() -> None:
    """An LLM runtime for every machine. MODEL defaults to cria, the model that ships with Camelid."""
