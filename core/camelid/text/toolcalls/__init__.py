"""Tool calls and reasoning found in generated text while it comes, a row a family of models."""

from camelid.text.toolcalls.families import FAMILIES, detect, family_named, opens_reasoning
from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.parser import OutputParser, parser_for
from camelid.text.toolcalls.parts import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Message,
    Part,
    Reasoning,
    ToolCall,
    gather,
)

__all__ = [
    "FAMILIES",
    "CallArguments",
    "CallEnd",
    "CallStart",
    "Content",
    "Family",
    "Message",
    "OutputParser",
    "Part",
    "Reasoning",
    "ToolCall",
    "detect",
    "family_named",
    "gather",
    "opens_reasoning",
    "parser_for",
]
