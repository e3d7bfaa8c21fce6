"""The fields of llama.cpp's own endpoints."""

from __future__ import annotations

from camelid.sampling.samplers import TEMPERATURES
from camelid.server.fields.ids import IdsOr
from camelid.server.fields.kinds import (
    ANYTHING,
    Converted,
    Either,
    Flag,
    Integer,
    Json,
    Kind,
    ListOf,
    Number,
    Object,
    OneOf,
    Text,
)
from camelid.server.fields.lora import LORA
from camelid.server.fields.sampling import MORE_SAMPLING, STOPS, seed, stop_list
from camelid.server.fields.table import Field, Refused, Table

MAX_PROMPTS = 128
TOKEN_OR_TEXT = Either({str: Text(), int: Integer()}, "text or a token id")
MAX_MIXED = 1 << 15  # texts and ids of a mixed list, which are checked one by one
MIXED = IdsOr(ListOf(TOKEN_OR_TEXT, MAX_MIXED))
# A prompt with its text in an object; images would be beside it.
PROMPT_OBJECT = Object({"prompt_string": Text(), "multimodal_data": ListOf(ANYTHING)}, ("prompt_string",))
ONE_OF_PROMPTS = Either(
    {str: Text(), int: Integer(), list: MIXED, dict: PROMPT_OBJECT}, "text, token ids, or an object"
)
PROMPT = Either(
    {str: Text(), dict: PROMPT_OBJECT, list: IdsOr(ListOf(ONE_OF_PROMPTS, MAX_MIXED, 1))},
    "text, token ids, a list of both, or a list of prompts",
)


def clamped(least: float, most: float) -> Kind:
    """A number of any size, as llama.cpp takes it, put into the range that has a meaning."""
    return Converted(Number(), lambda value: min(max(value, least), most))


def temperature(value: float) -> float:
    """A temperature; 0 and below are greedy."""
    return 0.0 if value <= 0 else min(max(value, TEMPERATURES[0]), TEMPERATURES[1])


SAMPLING = (
    *MORE_SAMPLING,
    Field("temperature", Converted(Number(), temperature), "temperature"),
    Field("top_p", clamped(0, 1), "top_p"),
    Field("min_p", clamped(0, 1), "min_p"),
    Field("typical_p", clamped(0, 1), "typical_p"),
    Field("xtc_probability", clamped(0, 1), "xtc_probability"),
    Field("xtc_threshold", clamped(0, 1), "xtc_threshold"),
    Field("top_n_sigma", Converted(Number(), lambda n: -1.0 if n < 0 else min(n, 100.0)), "top_n_sigma"),
    Field("frequency_penalty", Number(-100, 100), "frequency_penalty"),
    Field("presence_penalty", Number(-100, 100), "presence_penalty"),
    Field("seed", Converted(Integer(-(2**63), 2**63 - 1), seed), "seed"),
    Field("stop", Converted(STOPS, stop_list), "stop"),
    # Read with the model's tokenizer: texts count as keys, too.
    Field("logit_bias", Json({"anyOf": [{"type": "array"}, {"type": "object"}]})),
    Field("ignore_eos", Flag()),
)
COMPLETION = Table.of(
    SAMPLING,
    Field("model", Text(512)),
    Field("prompt", PROMPT, is_required=True),
    Field("n_predict", Integer(-1)),
    Field("max_tokens", Integer(-1)),
    Field("max_completion_tokens", Integer(-1)),
    Field("n", Integer(1, 128)),
    Field("n_cmpl", Integer(1, 128)),
    Field("stream", Flag()),
    Field("n_probs", Integer(0, 20)),
    Field("logprobs", Integer(0, 20)),
    Field("post_sampling_probs", Flag()),
    Field("grammar", Text(1 << 20), "grammar"),
    Field("json_schema", Json({"type": ["object", "boolean", "string"]}), "json_schema"),
    Field("n_keep", Integer(-1)),
    Field("n_discard", Integer()),
    Field("n_cache_reuse", Integer()),  # a hint: the prefix cache reuses whatever it holds
    Field("cache_salt", Text(256), "cache_salt"),
    Field("id_slot", Integer(-1, 1 << 20)),
    Field("t_max_predict_ms", Number(-1, 1e9)),
    Field("return_tokens", Flag()),
    Field("return_progress", Flag()),
    Field("timings_per_token", Flag()),
    Field("response_fields", ListOf(Text(256), 256)),
    Field("verbose", Flag()),
    Refused("t_max_prompt_ms", "a prompt has no time limit of its own", (-1, 0)),
    Refused("n_indent", "lines are not cut by their indentation", (0,)),
    LORA,
    Refused("backend_sampling", "the backend draws wherever its samplers suffice", (False, True)),
)
EXTRA = ListOf(Object({"filename": Text(4096), "text": Text()}, ("filename", "text")), 1000)
INFILL = Table.of(
    [*COMPLETION.fields.values(), *COMPLETION.refused.values()],
    Field("prompt", Text()),
    Field("input_prefix", Text(), is_required=True),
    Field("input_suffix", Text(), is_required=True),
    Field("input_extra", EXTRA),
)
TOKENIZE = Table.of(
    Field("model", Text(512)),
    Field("content", Either({str: Text(), list: MIXED}, "text, or a list of texts and token ids")),
    Field("add_special", Flag()),
    Field("parse_special", Flag()),
    Field("with_pieces", Flag()),
)
DETOKENIZE = Table.of(Field("model", Text(512)), Field("tokens", IdsOr(ListOf(Integer(), MAX_MIXED))))
EMBEDDING = Table.of(
    Field("model", Text(512)),
    Field("content", PROMPT),
    Field("input", PROMPT),
    Field("encoding_format", OneOf(("float", "base64"))),
    Field("embd_normalize", Integer(-1, 64)),
)
SLOT = Table.of(Field("model", Text(512)), Field("filename", Text(200, 1)))
