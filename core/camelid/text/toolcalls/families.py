"""The formats of tool calls and reasoning, one row per model family, detected from the chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from camelid.errors import UnsupportedModelError
from camelid.text.toolcalls.family import SPACE, Family, Pair, Slot, Tags

# Reasoning markers (opening, closing). A template that contains the closing marker uses the pair.
THINKING: tuple[Pair, ...] = (
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<mm:think>", "</mm:think>"),
    ("<|channel>thought\n", "<channel|>"),
    ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    ("<think>", "</think>"),
)
NAME, ID, ARGUMENTS, CALLS = Slot.NAME, Slot.ID, Slot.ARGUMENTS, Slot.CALLS
CHATML = ("<|im_end|>", "<|endoftext|>")
LLAMA = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
DEEPSEEK = ("<｜end▁of▁sentence｜>",)
COHERE = ("<|END_OF_TURN_TOKEN|>", "<|END_RESPONSE|>")
GLM = Tags("<arg_key>", "</arg_key>", "</arg_value>", "</tool_call>", value_open="<arg_value>")
PARAMETER = Tags('<parameter name="', '">', "</parameter>", "</invoke>")

# The first row whose signs are all in the template counts, so special rows come first.
_ROWS = (
    Family(
        name="gpt-oss", signs=("<|channel|>", "<|message|>", "<|call|>"), primed="to=",
        opens=("<|channel|>", "<|start|>"), call=(Slot.HARMONY,), closes=("<|call|>",),
        thinking=("", "<|end|>"), dropped=("<|message|>", "<|constrain|>", "<|end|>"),
        ends=("<|return|>", "<|call|>"),
        calls_end_thoughts=True,
    ),
    Family(
        name="command-r7b", signs=("<|START_ACTION|>",), opens=("<|START_ACTION|>",), call=(CALLS,),
        closes=("<|END_ACTION|>",), keys=("tool_call_id", "tool_name", "parameters"),
        thinking=("<|START_THINKING|>", "<|END_THINKING|>"),
        dropped=("<|START_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"), ends=COHERE,
    ),
    Family(
        name="command-r", signs=("Action:", "tool_name", "```json"),
        opens=("Action:\n```json", "Action: ```json"), call=(CALLS,), closes=("```", "```"), ends=COHERE,
        keys=("tool_name", "parameters"),
    ),
    Family(
        name="deepseek-dsml", signs=("｜DSML｜", "invoke name="), ends=DEEPSEEK,
        opens=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"), call=(
            '<｜DSML｜invoke name="', NAME, '">', Tags(
                '<｜DSML｜parameter name="', '">', "</｜DSML｜parameter>", "</｜DSML｜invoke>",
                attribute='" string="',
            ),
        ),
        closes=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    ),
    # R1 and V3: function<｜tool▁sep｜>name, then fenced JSON; V3.1: name<｜tool▁sep｜>, then bare JSON.
    Family(
        name="deepseek", signs=("<｜tool▁call▁begin｜>",), opens=("<｜tool▁calls▁begin｜>",), call=(
            "<｜tool▁call▁begin｜>", ("function<｜tool▁sep｜>",), NAME, ("<｜tool▁sep｜>",), ("```json",),
            ARGUMENTS,
            ("```",), "<｜tool▁call▁end｜>",
        ),
        closes=("<｜tool▁calls▁end｜>",), ends=DEEPSEEK, calls_end_thoughts=True,
    ),
    Family(
        name="kimi-k2", signs=("<|tool_call_argument_begin|>",), opens=("<|tool_calls_section_begin|>",),
        call=("<|tool_call_begin|>", Slot.NAME_AND_COUNT, "<|tool_call_argument_begin|>", ARGUMENTS,
        "<|tool_call_end|>"),
        closes=("<|tool_calls_section_end|>",), ends=("<|im_end|>",), calls_end_thoughts=True,
    ),
    Family(
        name="solar", signs=("<|tool_call:begin|>",), opens=("<|tool_calls|>",), call=(
            "<|tool_call:begin|>", ID, "<|tool_call:name|>", NAME, "<|tool_call:args|>", ARGUMENTS,
            "<|tool_call:end|>",
        ),
        thinking=("<|think|>", "<|end|>"), dropped=("<|begin|>assistant", "<|content|>"), ends=("<|calls|>",
        "<|flush|>"),
    ),
    Family(
        name="mistral", signs=("[TOOL_CALLS]", "[ARGS]"),
        call=("[TOOL_CALLS]", NAME, ("[CALL_ID]", ID), "[ARGS]", ARGUMENTS),
    ),
    Family(name="mistral-json", signs=("[TOOL_CALLS]",), opens=("[TOOL_CALLS]",), call=(CALLS,)),
    Family(
        name="functionary-v3.2", signs=(">>>all",), call=(">>>", NAME, ARGUMENTS), primed="", no_tool="all",
        ends=LLAMA,
    ),
    Family(
        name="seed-oss", signs=("<seed:tool_call>",), opens=("<seed:tool_call>",),
        closes=("</seed:tool_call>",),
        call=("<function=", NAME, ">", Tags("<parameter=", ">", "</parameter>", "</function>")),
        thinking=("<seed:think>", "</seed:think>"), ends=("<seed:eos>",),
    ),
    Family(
        name="qwen3-coder", signs=("<tool_call>", "<function=", "<parameter="), opens=("<tool_call>",),
        call=("<function=", NAME, ">", Tags("<parameter=", ">", "</parameter>", "</function>", padded=True)),
        closes=("</tool_call>",), ends=CHATML,
    ),
    Family(
        name="functionary-v3.1", signs=("<function=", "</function>"),
        call=("<function=", NAME, ">", ARGUMENTS, "</function>"), ends=LLAMA,
    ),
    Family(
        name="minimax-m2", signs=("<minimax:tool_call>",), opens=("<minimax:tool_call>",),
        call=('<invoke name="', NAME, '">', PARAMETER), closes=("</minimax:tool_call>",), ends=("[e~[",),
    ),
    Family(
        name="minicpm5", signs=("<function name=", "<param name="), ends=CHATML,
        call=('<function name="', NAME, '">', Tags('<param name="', '">', "</param>", "</function>")),
    ),
    Family(
        name="gemma4", signs=("<|tool_call>call:",), call=("<|tool_call>", "call:", NAME, Slot.BARE_KEYS,
        "<tool_call|>"),
        thinking=("<|channel>thought\n", "<channel|>"), dropped=('<|"|>',), ends=("<turn|>",
        "<|tool_response>"),
    ),
    # Calls of this family are not parsed and stay text.
    Family(name="minimax-m3", signs=("<mm:think>",), thinking=("<mm:think>", "</mm:think>")),
    Family(
        name="glm", signs=("<arg_key>", "<arg_value>"), call=("<tool_call>", NAME, GLM),
        ends=("<|observation|>", "<|user|>", "<|endoftext|>", "<|role_end|>", *DEEPSEEK),
    ),
    Family(
        name="granite", signs=("<|tool_call|>", "<|start_of_role|>"), opens=("<|tool_call|>", "<tool_call>"),
        call=(CALLS,), closes=("</tool_call>",), answer=("<response>", "</response>"),
        ends=("<|end_of_text|>",),
    ),
    Family(
        name="phi-4-mini", signs=("<|tool_call|>",), opens=("<|tool_call|>",), call=(CALLS,),
        closes=("<|/tool_call|>",), ends=("<|end|>", "<|endoftext|>"),
    ),
    Family(
        name="apertus", signs=("<|tools_prefix|>",), opens=("<|tools_prefix|>",), call=(Slot.KEYED_CALLS,),
        closes=("<|tools_suffix|>",), thinking=("<|inner_prefix|>", "<|inner_suffix|>"),
        ends=("<|assistant_end|>",),
    ),
    Family(
        name="tool-calls", signs=("<tool_calls>",), opens=("<tool_calls>",), call=(CALLS,),
        closes=("</tool_calls>",),
        dropped=("[END FINAL RESPONSE]",), ends=("<end_of_sentence>", "<|end|>"),
    ),
    Family(
        name="nemotron", signs=("<TOOLCALL>",), opens=("<TOOLCALL>",), call=(CALLS,), closes=("</TOOLCALL>",),
        ends=("<SPECIAL_12>",),
    ),
    Family(
        name="gigachat", signs=("<|role_sep|>", "<|message_sep|>"), opens=("function call<|role_sep|>",
        "<|function_call|>"),
        call=(CALLS,), closes=("<|message_sep|>",), ends=("<|message_sep|>",),
    ),
    Family(
        name="lfm2", signs=("List of tools: ", "<|im_start|>"), opens=("<|tool_call_start|>",),
        call=(Slot.PYTHON,),
        closes=("<|tool_call_end|>",), ends=CHATML,
    ),
    Family(name="functools", signs=("functools[",), opens=("functools",), call=(CALLS,), ends=LLAMA),
    Family(
        name="hermes", signs=("<tool_call>",), opens=("<tool_call>",), call=(CALLS,),
        closes=("</tool_call>",),
        ends=(*CHATML, "<|end_of_text|>"),
    ),
    Family(
        name="llama3", signs=("<|start_header_id|>", '"parameters": '), opens=("<|python_tag|>",), primed="",
        call=(Slot.CALLS_OR_PYTHON,), ends=LLAMA, keys=("name", "parameters"),
    ),
    Family(name="plain"),
)  # fmt: skip
FAMILIES: Mapping[str, Family] = {row.name: row for row in _ROWS}
DEFAULT_THINKING = FAMILIES["plain"].thinking


def family_named(name: str) -> Family:
    """The row of a name. Raises UnsupportedModelError, with the known names, for another name."""
    if name not in FAMILIES:
        raise UnsupportedModelError(
            f"unknown family of tool calls {name!r}; known: {', '.join(FAMILIES)}",
            kind="tool call family", name=name, known=tuple(FAMILIES),
        )  # fmt: skip
    return FAMILIES[name]


def detect(template: str | None) -> Family:
    """The family of a model, from its chat template's source; `plain` if no row matches.

    Reasoning is parsed only if the template contains a pair of THINKING.
    """
    source = template or ""
    row = next(row for row in _ROWS if all(sign in source for sign in row.signs))
    if row.thinking != DEFAULT_THINKING:
        return row
    return replace(row, thinking=next((pair for pair in THINKING if pair[1] in source), None))


def opens_reasoning(rendered_prompt_tail: str, family: Family) -> bool:
    """True if the prompt ends with the opening of reasoning, so that the output begins within reasoning."""
    opening = family.thinking[0].rstrip(SPACE) if family.thinking else ""
    return bool(opening) and rendered_prompt_tail.rstrip(SPACE).endswith(opening)
