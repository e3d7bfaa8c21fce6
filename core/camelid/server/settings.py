# ruff: noqa: RUF009 - `row` is a call of `dataclasses.field`
"""The settings of a server: one row each, from which flags, environment, TOML keys and documentation follow.

A row's name is its TOML key, with dashes its flag, and after `CAMELID_SERVE_` its environment variable. Where
llama-server has the setting, its flags are `flags` and its variable is `LLAMA_ARG_` and `llama`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from camelid.loading.options import (
    ACTIVATIONS,
    BACKENDS,
    COLLECTIVES,
    KV_TYPE_NAMES,
    LEARN,
    MOST_RANK,
    MOST_SLOTS,
)
from camelid.server.setting_kinds import (
    File,
    OneOf,
    Real,
    Several,
    Size,
    Span,
    Switch,
    Text,
    Variables,
    Whole,
)
from camelid.server.setting_rows import Row, row

PARALLEL = 4


TEXTS = partial(Several, Text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server."""

    host: str = row("127.0.0.1", Text("HOST"), "Address to listen on.", llama="HOST")
    port: int = row(8080, Whole(0, 65535), "Port to listen on; 0 picks a free one.", llama="PORT")
    allowed_hosts: tuple[str, ...] = row(
        (), TEXTS(), "A host name that clients may use for this server; * allows all.", "--allowed-host"
    )
    cors_origins: tuple[str, ...] = row(
        (),
        TEXTS(),
        "Origin of pages that may call; * allows all.",
        "--cors-origin",
        "--cors-origins",
        llama="CORS_ORIGINS",
    )
    api_prefix: str = row(
        "",
        Text("PATH"),
        "Path before all others, such as /llm; without a slash at its end.",
        llama="API_PREFIX",
    )
    tls_cert: Path | None = row(
        None, File(), "TLS certificate (PEM).", "--ssl-cert-file", llama="SSL_CERT_FILE"
    )
    tls_key: Path | None = row(None, File(), "TLS private key (PEM).", "--ssl-key-file", llama="SSL_KEY_FILE")
    api_keys: tuple[str, ...] = row(
        (), TEXTS(), "A key that clients must send.", "--api-key", llama="LLAMA_API_KEY"
    )
    api_key_file: Path | None = row(
        None,
        File(),
        "File of keys, one per line: SECRET or NAME:SECRET:SCOPES:REQUESTS:TOKENS:CONCURRENCY, shortened at "
        "will; scopes use, learn and admin, joined by +; requests and tokens per minute.",
        llama="API_KEY_FILE",
    )
    no_auth: bool = row(False, Switch(), "Serve an address beyond loopback without any key.")
    config: Path | None = row(None, File(), "TOML file of settings; flags and environment override it.")

    models: tuple[str, ...] = row(
        (),
        TEXTS(separator=";"),
        "A model: a file, a hub id, or NAME=either.",
        "-m",
        "--model",
        "-hf",
        "-hfr",
        "--hf-repo",
        llama="MODEL HF_REPO",
    )
    alias: tuple[str, ...] = row(
        (),
        TEXTS(),
        "Names of the first model; replies have the first in the alphabet.",
        "-a",
        "--alias",
        llama="ALIAS",
    )
    tags: tuple[str, ...] = row(
        (), TEXTS(), "Tags of the first model, shown in /v1/models.", "--tags", llama="TAGS"
    )
    offline: bool = row(False, Switch(), "Download nothing: hub ids come from the cache.", llama="OFFLINE")
    models_dir: Path | None = row(
        None, File("FOLDER"), "Folder whose models are offered, by their names.", llama="MODELS_DIR"
    )
    lazy: bool = row(False, Switch(), "Load the first model with its first request, not at the start.")
    keep_alive: float = row(
        -1.0,
        Span(has_never=True),
        "Unload a model that was idle for so long; 0: at once, -1: never.",
        "--sleep-idle-seconds",
    )
    memory: int | None = row(
        None,
        Size(),
        "Bound of all models together; the longest idle is unloaded first. Default: 9/10 of "
        "this machine's memory, for models on its processor.",
    )

    parallel: int | None = row(
        None,
        Whole(1, 4096, {"-1": None, "auto": None}),
        f"Sequences that run at once. Default: {PARALLEL}.",
        "-np",
        llama="N_PARALLEL",
    )
    max_queue: int | None = row(None, Whole(), "Requests that wait. Default: 8 times --parallel.")
    timeout: float | None = row(None, Span(least=0.001), "Longest time of a request.", "-to", llama="TIMEOUT")
    queue_timeout: float | None = row(None, Span(least=0.001), "Longest time in the queue.")
    max_tokens: int | None = row(
        None, Whole(1), "Most tokens of an answer. Default: the rest of the context."
    )
    max_prompt_tokens: int | None = row(None, Whole(1), "Most tokens of a prompt. Default: the context.")
    max_body: int = row(16 << 20, Size(1), "Most bytes of a request's body.")
    max_choices: int = row(16, Whole(1, 128), "Most choices (n) of a request.")
    max_tools: int = row(512, Whole(0, 512), "Most tools of a request.")
    max_schema: int = row(256 << 10, Size(), "Most bytes of a request's schema, grammar or tools.")
    drain: float = row(
        30.0, Span(), "After SIGTERM, longest time for the requests under way.", "--shutdown-timeout"
    )
    strict: bool = row(False, Switch(), "Refuse fields of a request that no API has; else a warning.")

    slots: bool = row(True, Switch(), "Offer GET /slots.", llama="ENDPOINT_SLOTS")
    slot_save_path: Path | None = row(
        None, File("FOLDER"), "Folder of saved slots; without it none are saved.", llama="SLOT_SAVE_PATH"
    )
    lora_dir: Path | None = row(
        None, File("FOLDER"), "Folder whose adapters POST /v1/load_lora_adapter may load; else none."
    )
    cache_idle_slots: bool = row(
        True,
        Switch(),
        "Log idle slots under --verbose; their rows stay in the prefix cache in any case.",
        llama="CACHE_IDLE_SLOTS",
    )
    props: bool = row(False, Switch(), "Offer POST /props.", llama="ENDPOINT_PROPS")
    metrics: bool | None = row(
        None,
        Switch(),
        "Offer GET /metrics, which is the default; --metrics adds llama.cpp's names.",
        llama="ENDPOINT_METRICS",
    )
    metrics_names: tuple[str, ...] = row(
        (),
        Several(OneOf(("vllm", "llamacpp"))),
        "Further names of the metrics: vllm, llamacpp.",
        "--metrics-names",
    )
    page: bool = row(True, Switch(), "Serve the page at /.", "--ui/--no-ui", "--webui/--no-webui", llama="UI")

    verbose: bool = row(
        False, Switch(), "Print details, and the traceback of an error.", "-v", "--log-verbose"
    )
    otel: str | None = row(
        None, Text("URL"), "Base URL of an OTLP/HTTP receiver of spans. Default: OTEL_EXPORTER_OTLP_ENDPOINT."
    )
    otel_content: bool = row(False, Switch(), "Write prompts and answers to the spans.")
    log_disable: bool = row(False, Switch(), "Print errors only.")
    log_format: str = row("text", OneOf(("text", "json")), "Form of log lines: text or json.")
    log_prompts: bool = row(False, Switch(), "Write prompts and answers to the log.")
    witness: Path | None = row(None, File(), "Witness log: a chained line of facts per request.")
    witness_content: bool = row(False, Switch(), "Write prompts and answers to the witness log.")

    backend: str = row("auto", OneOf(BACKENDS), f"Backend: {', '.join(BACKENDS)}.")
    adapter: str = row(
        "",
        Text("NAME"),
        "A device by part of its name, or on cuda by its number, or a CPU kernel variant, such as avx2.",
    )
    threads: int | None = row(
        None,
        Whole(1, 4096, {"-1": None, "auto": None}),
        "Threads of the processor. Default: all.",
        "-t",
        llama="THREADS",
    )
    gpu_layers: int | None = row(
        None,
        Whole(0, 10**6, {"-1": -1, "all": -1, "auto": None}),
        "Put the last N layers on a GPU.",
        "-ngl",
        "--n-gpu-layers",
        llama="N_GPU_LAYERS",
    )
    tensor_parallel: int = row(1, Whole(1, 64), "Divide every layer among N GPUs (cuda).")
    pipeline_parallel: int = row(1, Whole(1, 64), "Divide the layers among N GPUs (cuda).")
    collective: str | None = row(
        None,
        OneOf(COLLECTIVES),
        "Sums over the GPUs of tensor_parallel: peer, or nccl (then other requests may change a result).",
    )
    activations: str | None = row(
        None,
        OneOf(ACTIVATIONS),
        "Input of matrix products: f32, or q8, rounded to 8 bits. Default: by backend.",
    )
    mmproj: Path | None = row(None, File(), "GGUF file of the model's vision tower.", "-mm", llama="MMPROJ")
    mmproj_auto: bool = row(
        True,
        Switch(),
        "Fetch the mmproj file in the repository of a hub id.",
        " /--no-mmproj",
        llama="MMPROJ_AUTO",
    )
    lora: tuple[str, ...] = row(
        (), Several(Text("FILE[:SCALE]")), "A LoRA adapter that acts on all requests.", "--lora"
    )
    lora_scaled: tuple[str, ...] = row((), Several(Text("FILE:SCALE")), "As --lora.", "--lora-scaled")
    lora_init_without_apply: bool = row(
        False, Switch(), "Load the adapters of --lora, but let them act on requests that ask for them alone."
    )
    lora_modules: tuple[str, ...] = row(
        (), Several(Text("NAME=FILE")), "An adapter that acts where NAME is the model.", "--lora-modules"
    )
    adapter_rank: int = row(0, Whole(0, MOST_RANK), "Largest rank of a request's adapters together.")
    adapter_slots: int = row(0, Whole(0, MOST_SLOTS), "Different adapters that run at once.")
    context: int | None = row(
        None, Whole(1), "Context length of a sequence. Default: the model's, at most 4096."
    )
    ctx_size: int | None = row(
        None,
        Whole(1, words={"0": None}),
        "As llama-server's: context of all sequences, divided by -np where "
        "that is given, and shared by them under -kvu.",
        "-c",
        llama="CTX_SIZE",
    )
    kv_unified: bool = row(False, Switch(), "Sequences share --ctx-size.", "-kvu/-no-kvu", llama="KV_UNIFIED")
    kv_rows: int | None = row(
        None, Whole(1), "Rows of the KV cache. Default: full contexts for all sequences."
    )
    kv_type: str = row("f32", OneOf(KV_TYPE_NAMES), f"Type of the KV cache: {', '.join(KV_TYPE_NAMES)}.")
    cache_type_k: str | None = row(
        None, Text("TYPE"), "Type of keys, the same as of values.", "-ctk", llama="CACHE_TYPE_K"
    )
    cache_type_v: str | None = row(
        None, Text("TYPE"), "Type of values, the same as of keys.", "-ctv", llama="CACHE_TYPE_V"
    )
    chunk: int | None = row(
        None,
        Whole(1),
        "Prompt rows of a step. Default: the backend's.",
        "-ub",
        "--ubatch-size",
        llama="UBATCH",
    )
    step_ms: int = row(
        100, Whole(1), "Time budget of a step with prompt rows while answers are running, in milliseconds."
    )
    max_in_flight: int | None = row(None, Whole(1), "Steps in flight. Default: the backend's.")
    learn: str = row(
        "off",
        OneOf(LEARN),
        "Learn from feedback (POST /v1/feedback), for each key apart: off, memory, or on, which also trains.",
    )
    learn_folder: Path | None = row(
        None, File(), "Folder of what was learnt. Default: in the user's data directory."
    )
    learn_checks: Path | None = row(
        None,
        File(),
        "File of questions with right answers, which count as past requests at the gate.",
    )

    chat_template: str | None = row(
        None, Text(), "Source of a chat template, or the name of one, such as llama3.", llama="CHAT_TEMPLATE"
    )
    chat_template_file: Path | None = row(
        None, File(), "File of a chat template.", llama="CHAT_TEMPLATE_FILE"
    )
    chat_template_kwargs: Mapping[str, Any] | None = row(
        None, Variables(), "Variables of the chat template.", llama="CHAT_TEMPLATE_KWARGS"
    )
    reasoning: str = row(
        "auto",
        OneOf(("on", "off", "auto")),
        "Thoughts, where the chat template can turn them on and off: on, off, or auto, which is on "
        "as in llama-server.",
        "-rea",
        llama="REASONING",
    )
    reasoning_budget: str = row(
        "-1",
        OneOf(("0", "-1")),
        "Tokens of thoughts: 0 turns them off as --reasoning off, -1 is no bound.",
        llama="THINK_BUDGET",
    )

    n_predict: int | None = row(
        None,
        Whole(1, words={"-1": None}),
        "Tokens of an answer that asks for no number.",
        "-n",
        "--predict",
        llama="N_PREDICT",
    )
    seed: int | None = row(None, Whole(0, 2**64 - 1, {"-1": None}), "Seed; -1: random.", "-s")
    temperature: float | None = row(None, Real(0, 2), "0 is greedy.", "--temp", llama="TEMPERATURE")
    top_k: int | None = row(None, Whole(), "0 is off.", llama="TOP_K")
    top_p: float | None = row(None, Real(0, 1), "1 is off.", llama="TOP_P")
    min_p: float | None = row(None, Real(0, 1), "0 is off.", llama="MIN_P")
    typical_p: float | None = row(None, Real(0, 1), "1 is off.", "--typical")
    top_n_sigma: float | None = row(None, Real(-1, 1000), "-1 is off.", "--top-nsigma")
    repeat_penalty: float | None = row(None, Real(0, 100), "1 is off.", llama="REPEAT_PENALTY")
    repeat_last_n: int | None = row(None, Whole(-1), "Recent tokens of the penalties; -1: all.")
    presence_penalty: float | None = row(None, Real(-2, 2), "0 is off.", llama="PRESENCE_PENALTY")
    frequency_penalty: float | None = row(None, Real(-2, 2), "0 is off.", llama="FREQUENCY_PENALTY")
    dry_multiplier: float | None = row(None, Real(0, 1000), "0 is off.")
    dry_base: float | None = row(None, Real(0, 1000), "DRY's base.")
    dry_allowed_length: int | None = row(None, Whole(), "Longest repetition without a DRY penalty.")
    dry_penalty_last_n: int | None = row(None, Whole(-1), "Recent tokens of DRY; -1: all.")
    dry_sequence_breakers: tuple[str, ...] | None = row(
        None, TEXTS(separator=""), "Text that ends DRY's repetitions.", "--dry-sequence-breaker"
    )
    xtc_probability: float | None = row(None, Real(0, 1), "0 is off.")
    xtc_threshold: float | None = row(None, Real(0, 1), "XTC's threshold.")
    dynatemp_range: float | None = row(None, Real(0, 100), "0 is off.")
    dynatemp_exponent: float | None = row(None, Real(0, 100), "Exponent of the entropy.", "--dynatemp-exp")
    mirostat: int | None = row(None, Whole(0, 2), "Version; 0 is off.")
    mirostat_eta: float | None = row(None, Real(0, 1000), "Learning rate.", "--mirostat-lr")
    mirostat_tau: float | None = row(None, Real(0, 1000), "Target entropy.", "--mirostat-ent")
    samplers: str | None = row(None, Text("ORDER"), "Order of the samplers, separated by semicolons.")
    ignore_eos: bool | None = row(None, Switch(), "Continue past end tokens.")
    cache_prompt: bool | None = row(None, Switch(), "Use the prefix cache.", llama="CACHE_PROMPT")
    context_shift: bool | None = row(
        None, Switch(), "Drop old tokens where the context is full; else refuse.", llama="CONTEXT_SHIFT"
    )
    keep: int | None = row(None, Whole(0), "Tokens that --context-shift keeps at the start.")


# First row of a section -> the section's title, in the order of the rows.
SECTIONS = {
    "host": "Address and keys",
    "models": "Models",
    "parallel": "Limits",
    "slots": "Endpoints",
    "verbose": "Logs",
    "backend": "Loading",
    "chat_template": "Chat template",
    "n_predict": "Defaults of requests",
}
MODEL_SECTIONS = ("Loading", "Chat template", "Defaults of requests")
OWN_OF_MODELS = ("keep_alive", "parallel", "max_queue")  # per model too, though in another section


def _rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    section = ""
    for each in fields(Settings):
        section = SECTIONS.get(each.name, section)
        found[each.name] = each.metadata["row"](name=each.name, section=section)
    return found


ROWS: Mapping[str, Row] = _rows()
# The rows that a [models.NAME] table may set, besides its own.
MODEL_ROWS: Mapping[str, Row] = {
    name: each for name, each in ROWS.items() if each.section in MODEL_SECTIONS or name in OWN_OF_MODELS
}
