"""The group of verbs. `camelid --help` imports none of them."""

from __future__ import annotations

from importlib import import_module

import click

from camelid.version import __version__

COMMANDS = {
    "run": "Answer a prompt, streamed.",
    "chat": "Talk with a model.",
    "pull": "Fetch a model from a hub.",
    "info": "Show what a model is, how large, and how much memory it takes.",
    "inspect": "Show what lies in a directory or GGUF file, runnable or not.",
    "explain": "Print the plan: the model as a list of ops, and what a step costs.",
    "convert": "Write a Hugging Face directory as GGUF.",
    "quantize": "Write a GGUF with smaller weights.",
    "tokenize": "Turn text into token ids.",
    "doctor": "Show the machine and its backends, and try every kernel.",
    "bench": "Measure prefill and decode against this machine's read bandwidth.",
    "perplexity": "Measure how well a model predicts a text.",
    "web": "Serve the built page on loopback.",
}


class CommandGroup(click.Group):
    """Finds a verb's command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The verbs, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, or None for a name that is no verb."""
        return import_module(f"camelid.cli.{cmd_name}").command if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table itself, so that help needs no import."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", message="camelid %(version)s")
def main() -> None:
    """One LLM runtime for every machine. MODEL left out means cria, the model in the box."""
