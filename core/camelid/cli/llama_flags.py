"""llama-server's flags that are no settings of `camelid serve`: each is known, and refused by name or noted.

The flags of both are rows of `camelid.server.settings`. A table's line has flags, then environment variables
in capitals; `=` marks a flag with a value, `?` one whose value may be missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

LLAMA_PREFIX = "LLAMA_ARG_"
# Values of flags whose value may be missing.
TRISTATE = frozenset(["on", "enabled", "true", "1", "off", "disabled", "false", "0", "auto", "-1"])
Lines = Mapping[str, str]

# Reason -> flags that are refused. Their values are never read.
REFUSED: Lines = {
    "control vectors cannot be applied": (
        "--control-vector --control-vector-scaled --control-vector-layer-range"
    ),
    "drafts come from no second model here": (
        "-md --model-draft --spec-draft-model SPEC_DRAFT_MODEL --spec-draft-hf -hfd -hfrd --hf-repo-draft "
        "SPEC_DRAFT_HF_REPO --spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd "
        "--threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd "
        "--cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft "
        "--spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft "
        "--spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft "
        "--spec-draft-poll-batch --poll-batch-draft --spec-draft-override-tensor -otd "
        "--override-tensor-draft --spec-draft-cpu-moe -cmoed --cpu-moe-draft SPEC_DRAFT_CPU_MOE "
        "--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft SPEC_DRAFT_N_CPU_MOE "
        "--spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft "
        "--n-gpu-layers-draft N_GPU_LAYERS_DRAFT --spec-draft-type-k -ctkd --cache-type-k-draft "
        "SPEC_DRAFT_CACHE_TYPE_K --spec-draft-type-v -ctvd --cache-type-v-draft SPEC_DRAFT_CACHE_TYPE_V "
        "--spec-draft-backend-sampling --no-spec-draft-backend-sampling SPEC_DRAFT_BACKEND_SAMPLING "
        "--spec-draft-sampling SPEC_DRAFT_SAMPLING --spec-draft-p-split --draft-p-split SPEC_DRAFT_P_SPLIT "
        "--spec-draft-p-min --draft-p-min SPEC_DRAFT_P_MIN --spec-draft-n-max SPEC_DRAFT_N_MAX "
        "--spec-draft-n-min SPEC_DRAFT_N_MIN --draft --draft-n --draft-max DRAFT_MAX --draft-min "
        "--draft-n-min DRAFT_MIN --ctx-size-draft -cd"
    ),
    "speculation of all requests cannot be set here": (
        "--spec-type SPEC_TYPE --spec-default --spec-synth-len SPEC_SYNTH_LEN --spec-synth-rates "
        "SPEC_SYNTH_RATES --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match "
        "--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits "
        "--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits "
        "--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits "
        "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits -lcs --lookup-cache-static -lcd "
        "--lookup-cache-dynamic"
    ),
    "an image's tower is set by --mmproj FILE or is the hub's; audio and video input is not available yet": (
        "-mmu --mmproj-url MMPROJ_URL --mmproj-offload "
        "--no-mmproj-offload MMPROJ_OFFLOAD -mmdev --mmproj-device --image-min-tokens IMAGE_MIN_TOKENS "
        "--image-max-tokens IMAGE_MAX_TOKENS --mtmd-batch-max-tokens MTMD_BATCH_MAX_TOKENS --video-fps "
        "VIDEO_FPS --video-timestamp-interval VIDEO_TIMESTAMP_INTERVAL --video-ffmpeg-dir VIDEO_FFMPEG_DIR "
        "--media-path -mv --model-vocoder --tts-use-guide-tokens"
    ),
    "models for embeddings and rankings are known by their files; leave it out": (
        "--embedding --embeddings EMBEDDINGS --rerank --reranking RERANKING --pooling POOLING "
        "--embd-normalize --embd-gemma-default"
    ),
    "the context is stretched as the model's file says": (
        "--rope-scaling ROPE_SCALING_TYPE --rope-scale ROPE_SCALE --rope-freq-base ROPE_FREQ_BASE "
        "--rope-freq-scale ROPE_FREQ_SCALE --yarn-orig-ctx YARN_ORIG_CTX --yarn-ext-factor YARN_EXT_FACTOR "
        "--yarn-attn-factor YARN_ATTN_FACTOR --yarn-beta-slow YARN_BETA_SLOW --yarn-beta-fast YARN_BETA_FAST "
        "--grp-attn-n -gan GRP_ATTN_N --grp-attn-w -gaw GRP_ATTN_W"
    ),
    "a model's metadata is used as it is": "--override-kv",
    "name a device by --backend, --adapter and -ngl": (
        "-dev --device DEVICE -sm --split-mode SPLIT_MODE -ts --tensor-split TENSOR_SPLIT -mg --main-gpu "
        "MAIN_GPU -ot --override-tensor OVERRIDE_TENSOR -cmoe --cpu-moe CPU_MOE -ncmoe --n-cpu-moe N_CPU_MOE "
        "--moe-cache-mib MOE_CACHE_MIB -ncffn --n-cpu-ffn N_CPU_FFN -nkvo --no-kv-offload "
        "--no-op-offload -nr --no-repack --no-host NO_HOST"
    ),
    "the server speaks to no other machine; see camelid.ray": "--rpc RPC",
    "place the process by taskset, numactl or nice": (
        "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio -Cb --cpu-mask-batch -Crb --cpu-range-batch "
        "--cpu-strict-batch --prio-batch --numa NUMA"
    ),
    "give the model itself: a file, or a hub id as owner/repo:QUANT or owner/repo:file.gguf": (
        "-mu --model-url MODEL_URL -dr --docker-repo DOCKER_REPO -hff --hf-file HF_FILE "
        "--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
        "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
        "--vision-gemma-4b-default --vision-gemma-12b-default -hfv -hfrv --hf-repo-v -hffv --hf-file-v"
    ),
    "set the variable HF_TOKEN, which other processes do not see": "-hft --hf-token",
    "logs go to standard error; redirect them": "--log-file LOG_FILE",
    "say --log-format json": "--log-jsonl LOG_JSONL",
    "prompts are logged by --log-prompts or --witness FILE --witness-content": "--log-prompts-dir",
    "send it with a request": (
        "--grammar --grammar-file -j --json-schema -jf --json-schema-file -l --logit-bias -r --reverse-prompt"
    ),
    "control tokens are never part of a text": "-sp --special",
    "this sampler is not available": "--adaptive-target --adaptive-decay",
    "give the names by --samplers": "--sampler-seq --sampling-seq",
    "the order of parts comes from the model": "--spm-infill",
    "requests share the KV cache; bound it by --kv-rows": "--kv-unified-per-slot KV_UNIFIED_PER_SLOT",
    "the methods, headers and credentials of CORS are fixed": (
        "--cors-methods CORS_METHODS --cors-headers CORS_HEADERS --cors-credentials --no-cors-credentials "
        "CORS_CREDENTIALS"
    ),
    "the page is part of this package": "--path STATIC_PATH",
    "one process listens on one address": "--reuse-port REUSE_PORT",
    "the page has no settings of the server": (
        "--ui-config --webui-config UI_CONFIG --ui-config-file --webui-config-file UI_CONFIG_FILE"
    ),
    "the server runs no tools and speaks to no other server": (
        "--ui-mcp-proxy --webui-mcp-proxy UI_MCP_PROXY --tools TOOLS --tools-runtime TOOLS_RUNTIME "
        "--mcp-servers-config MCP_SERVERS_CONFIG --mcp-servers-json MCP_SERVERS_JSON -ag --agent AGENT"
    ),
    "describe models by --config, and bound them by --memory": (
        "--models-preset MODELS_PRESET --models-max MODELS_MAX --no-models-autoload"
    ),
    "say it in a request, or by --chat-template-kwargs": (
        "--reasoning-effort REASONING_EFFORT --reasoning-budget-message THINK_BUDGET_MESSAGE "
        "--no-reasoning-preserve"
    ),
    "tool calls and reasoning are always parsed": "--skip-chat-parsing SKIP_CHAT_PARSING",
    "a last message of the assistant is continued if the request says so": (
        "--prefill-assistant --no-prefill-assistant PREFILL_ASSISTANT"
    ),
    "read `camelid doctor`": "--list-devices",
    "read `camelid --version`": "--version",
    "read `camelid --help`": "--usage --completion-bash -cl --cache-list",
}
# Flags whose value holds here in any case.
TRUE: Lines = {
    "": (
        "--jinja JINJA -cb --cont-batching CONT_BATCHING --no-mcp-proxy --no-ui-mcp-proxy "
        "--no-webui-mcp-proxy -no-ag --no-agent --models-autoload "
        "MODELS_AUTOLOAD -kvo --kv-offload KV_OFFLOAD --op-offload --repack REPACK -e --escape "
        "--no-skip-chat-parsing --no-log-jsonl --reasoning-preserve REASONING_PRESERVE --no-perf PERF"
    )
}
# What takes its place -> flags that are accepted without effect, with a line on standard error.
WITHOUT_EFFECT: Lines = {
    "one number of threads is for all work (-t)": "-tb= --threads-batch= --threads-http= THREADS_HTTP",
    "the rows of a step are --chunk": "-b= --batch-size= BATCH",
    "attention is what the backend has": "-fa? --flash-attn? FLASH_ATTN",
    "files are read, not mapped": (
        "--mlock MLOCK --mmap --no-mmap NO_MMAP -dio --direct-io -ndio --no-direct-io -lm= --load-mode= "
        "LOAD_MODE -lzm= --lazy-mode= LAZY_MODE"
    ),
    "the KV cache keeps what a window of attention reads": "--swa-full SWA_FULL",
    "the KV cache has pages": "-dt= --defrag-thold= DEFRAG_THOLD",
    "every answer has its timings": "--perf",
    "no prompt comes from the command line": "--no-escape",
    "batching is always on": "-nocb --no-cont-batching",
    "chat templates are always Jinja": "--no-jinja",
    "waiting costs no polling": "--poll= --poll-batch=",
    "memory is worked out before loading (--memory)": (
        "-fit? --fit? FIT -fitt= --fit-target= FIT_TARGET -fitc= --fit-ctx= FIT_CTX"
    ),
    "every read of a file is checked": "--check-tensors",
    "log lines have one form (--log-format)": (
        "--log-colors? LOG_COLORS --log-prefix --no-log-prefix LOG_PREFIX --log-timestamps "
        "--no-log-timestamps LOG_TIMESTAMPS -lv= --verbosity= --log-verbosity= LOG_VERBOSITY"
    ),
    "the prefix cache is part of the KV cache (--kv-rows)": (
        "-ctxcp= --ctx-checkpoints= --swa-checkpoints= CTX_CHECKPOINTS -cms= --checkpoint-min-step= "
        "CHECKPOINT_MIN_SPACING_NT -cram= --cache-ram= CACHE_RAM --cache-reuse= CACHE_REUSE -sps= "
        "--slot-prompt-similarity="
    ),
    "programs are compiled while loading": "--warmup --no-warmup",
    "a stream sends comments until its first event": "--sse-ping-interval= SSE_PING_INTERVAL",
    "reasoning is sent apart, unless a request says otherwise": "--reasoning-format= THINK",
    "samplers run where the backend runs them": "-bs --backend-sampling BACKEND_SAMPLING",
}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A flag of llama-server. `n_values`: "" for none, "=" for one, "?" where it may be missing."""

    name: str
    reason: str
    is_refused: bool
    n_values: str


def _flags(lines: Lines, *, is_refused: bool) -> Iterator[Foreign]:
    for reason, words in lines.items():
        for word in words.split():
            name = word.rstrip("=?")
            yield Foreign(name, reason, is_refused, word.removeprefix(name))


TABLE = [
    *_flags(REFUSED, is_refused=True), *_flags(TRUE, is_refused=False),
    *_flags(WITHOUT_EFFECT, is_refused=False),
]  # fmt: skip
FLAGS: Mapping[str, Foreign] = {each.name: each for each in TABLE if each.name.startswith("-")}
# Environment variable -> reason to refuse it; "" for one without effect.
VARIABLES: Mapping[str, str] = {
    f"{LLAMA_PREFIX}{each.name}": each.reason if each.is_refused else ""
    for each in TABLE
    if not each.name.startswith("-")
}


def own_arguments(arguments: Sequence[str], note: Callable[[str], object]) -> list[str]:
    """The arguments without llama-server's that have no effect here.

    Raises UsageError for one that is refused.
    """
    own: list[str] = []
    rest = deque(arguments)
    while rest and rest[0] != "--":
        argument = rest.popleft()
        name, equals, _ = argument.partition("=")
        found = FLAGS.get(name)
        if found is None:
            own.append(argument)
            continue
        if found.is_refused:
            raise click.UsageError(f"{name} is not supported: {found.reason}")
        if not equals:
            _drop_value(found, rest)
        if found.reason:
            note(f"{name} has no effect here: {found.reason}")
    return [*own, *rest]


def _drop_value(flag: Foreign, rest: deque[str]) -> None:
    """Removes the flag's value from the remaining arguments. Raises UsageError if it is missing."""
    if flag.n_values == "=" and not rest:
        raise click.UsageError(f"{flag.name} needs a value")
    if flag.n_values == "=" or (flag.n_values == "?" and rest and rest[0] in TRISTATE):
        rest.popleft()
