"""The same values under the names of vLLM's and llama.cpp's servers, for their dashboards and balancers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from camelid.server.metrics.family import AnyRow, HistogramRow, Histograms, Labels, Read, Row
from camelid.server.metrics.histogram import FIRST_S, TOKEN_S, TOKENS, WHOLE_S, Bounds, Histogram
from camelid.server.metrics.live import Series
from camelid.server.metrics.snapshot import ModelFacts, Snapshot

VLLM: Labels = ("model_name", "engine")
# Reasons of ours that vLLM does not know -> its own.
VLLM_REASONS: Mapping[str, str] = {"tool_calls": "stop", "cancelled": "abort", "timeout": "abort"}


def vllm(kind: str, name: str, text: str, read: Read) -> Row:
    """A counter or gauge with vLLM's labels."""

    def samples(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
        return (((model.name, "0"), read(model)) for model in snapshot.models)

    return Row("counter" if kind == "counter" else "gauge", f"vllm:{name}", text, VLLM, samples)


def vllm_histogram(name: str, text: str, read: Callable[[Series], Histogram], bounds: Bounds) -> HistogramRow:
    """A histogram with vLLM's labels."""

    def histograms(snapshot: Snapshot) -> Histograms:
        return [((model.name, "0"), model.histogram(read, bounds)) for model in snapshot.models]

    return HistogramRow(f"vllm:{name}", text, VLLM, histograms)


def vllm_reasons(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """Ended answers by vLLM's reasons."""
    for model in snapshot.models:
        counts = Counter[str]({"stop": 0, "length": 0, "abort": 0, "error": 0})
        for series in model.series:
            for reason, n in series.reasons.items():
                counts[VLLM_REASONS.get(reason, reason)] += n
        for reason, n in counts.items():
            yield (model.name, "0", reason), n


def cache_config(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """Page size and number of pages, which a prefix-aware balancer hashes prompts by."""
    for model in snapshot.models:
        if model.service:
            state, load = model.service.host.running.engine.state, model.load
            page_bytes = sum(spec.unit_bytes for spec in state.states if spec.kind == "paged")
            n_pages = load.total_bytes // page_bytes if page_bytes else 0
            yield (model.name, "0", str(state.page_rows), str(n_pages), "True"), 1.0


def lora_info(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """The adapters of requests; the value is a time, by which a balancer finds the latest."""
    services = [model.service for model in snapshot.models if model.service]
    n_slots = sum(
        each.host.running.adapters.n_slots for each in services if each.host.running.adapters.loaded
    )
    waiting = ",".join(name for model in snapshot.models for name in model.load.waiting_adapters)
    running = ",".join(name for model in snapshot.models for name in model.load.running_adapters)
    yield (str(n_slots), waiting, running), time.time()


VLLM_ROWS: tuple[AnyRow, ...] = (
    vllm("gauge", "num_requests_running", "Sequences that run", lambda m: m.load.n_running),
    vllm("gauge", "num_requests_waiting", "Sequences that wait", lambda m: m.load.n_waiting),
    vllm("gauge", "kv_cache_usage_perc", "Share of the KV cache held by requests, 1 is all",
         lambda m: m.kv_share),
    vllm("counter", "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache",
         lambda m: m.totals.cached_rows + m.totals.prefill_rows),
    vllm("counter", "prefix_cache_hits_total", "Prompt tokens found in the prefix cache",
         lambda m: m.totals.cached_rows),
    vllm("counter", "num_preemptions_total", "Preempted sequences", lambda m: m.totals.preemptions),
    vllm("counter", "prompt_tokens_total", "Prompt tokens", lambda m: m.sum(lambda s: s.n_prompt)),
    vllm("counter", "generation_tokens_total", "Tokens of answers", lambda m: m.sum(lambda s: s.n_answer)),
    vllm("counter", "spec_decode_num_draft_tokens_total", "Draft tokens verified",
         lambda m: m.totals.drafted),
    vllm("counter", "spec_decode_num_accepted_tokens_total", "Draft tokens accepted",
         lambda m: m.totals.accepted),
    Row("counter", "vllm:request_success_total", "Ended answers", (*VLLM, "finished_reason"), vllm_reasons),
    vllm_histogram("time_to_first_token_seconds", "Time to first token", lambda s: s.first_token, FIRST_S),
    vllm_histogram("inter_token_latency_seconds", "Time between tokens", lambda s: s.inter_token, TOKEN_S),
    vllm_histogram("e2e_request_latency_seconds", "Time of a request", lambda s: s.whole, WHOLE_S),
    vllm_histogram("request_queue_time_seconds", "Time in the queue", lambda s: s.queue, FIRST_S),
    vllm_histogram("request_prefill_time_seconds", "Time of prefill", lambda s: s.prefill, FIRST_S),
    vllm_histogram("request_decode_time_seconds", "Time of decode", lambda s: s.decode, WHOLE_S),
    vllm_histogram("request_prompt_tokens", "Tokens of a prompt", lambda s: s.prompt_tokens, TOKENS),
    vllm_histogram("request_generation_tokens", "Tokens of an answer", lambda s: s.answer_tokens, TOKENS),
    Row("gauge", "vllm:cache_config_info", "The KV cache's pages",
        (*VLLM, "block_size", "num_gpu_blocks", "enable_prefix_caching"), cache_config),
    Row("gauge", "vllm:lora_requests_info", "Requests by adapter",
        ("max_lora", "waiting_lora_adapters", "running_lora_adapters"), lora_info),
)  # fmt: skip


def llamacpp(kind: str, name: str, text: str, read: Read) -> tuple[Row, Row]:
    """llama.cpp's metric: without labels for one model, as its tests and scripts read it, else by model."""
    full, made = f"llamacpp:{name}", "counter" if kind == "counter" else "gauge"

    def alone(snapshot: Snapshot) -> Iterable[tuple[Labels, float]]:
        return [((), read(model)) for model in snapshot.models]

    def by_model(snapshot: Snapshot) -> Iterable[tuple[Labels, float]]:
        return [((model.name,), read(model)) for model in snapshot.models]

    return Row(made, full, text, (), alone), Row(made, full, text, ("model",), by_model)


def quotient(n: float, seconds: float) -> float:
    return n / seconds if seconds else 0.0


def n_computed(model: ModelFacts) -> float:
    """Prompt tokens that were computed, not cached; counted at an answer's end, as their seconds are."""
    return model.sum(lambda s: s.n_computed)


def n_predicted(model: ModelFacts) -> float:
    """Tokens of ended answers."""
    return model.sum(lambda s: s.answer_tokens.total)


def prefill_s(model: ModelFacts) -> float:
    return model.sum(lambda s: s.prefill.total)


def decode_s(model: ModelFacts) -> float:
    return model.sum(lambda s: s.decode.total)


def n_busy(model: ModelFacts) -> float:
    """Sequences in a step, on average."""
    return quotient(sum(steps.n_sequences for _, steps in model.steps()), model.n_steps)


LLAMACPP_ROWS: tuple[tuple[Row, Row], ...] = (
    llamacpp("counter", "prompt_tokens_total", "Number of prompt tokens processed.", n_computed),
    llamacpp("counter", "prompt_seconds_total", "Prompt process time", prefill_s),
    llamacpp("counter", "tokens_predicted_total", "Number of generation tokens processed.", n_predicted),
    llamacpp("counter", "tokens_predicted_seconds_total", "Predict process time", decode_s),
    llamacpp("counter", "n_decode_total", "Total number of steps", lambda m: m.n_steps),
    llamacpp("gauge", "n_tokens_max", "Largest observed n_tokens.", lambda m: m.tally.n_tokens_max),
    llamacpp("gauge", "n_busy_slots_per_decode", "Average number of sequences in a step", n_busy),
    llamacpp("gauge", "prompt_tokens_seconds", "Average prompt throughput in tokens/s.",
             lambda m: quotient(n_computed(m), prefill_s(m))),
    llamacpp("gauge", "predicted_tokens_seconds", "Average generation throughput in tokens/s.",
             lambda m: quotient(n_predicted(m), decode_s(m))),
    llamacpp("gauge", "requests_processing", "Number of requests processing.", lambda m: m.load.n_running),
    llamacpp("gauge", "requests_deferred", "Number of requests deferred.", lambda m: m.load.n_waiting),
    llamacpp("counter", "prompt_tokens_cached_total", "Number of prompt tokens found in the prefix cache.",
             lambda m: m.totals.cached_rows),
    llamacpp("counter", "spec_decode_num_draft_tokens_total", "Draft tokens verified",
             lambda m: m.totals.drafted),
    llamacpp("counter", "spec_decode_num_accepted_tokens_total", "Draft tokens accepted",
             lambda m: m.totals.accepted),
)  # fmt: skip
ALIASES = ("vllm", "llamacpp")


def alias_rows(names: Iterable[str], n_models: int) -> Iterator[AnyRow]:
    """The rows of these servers' names."""
    if "vllm" in names:
        yield from VLLM_ROWS
    if "llamacpp" in names:
        yield from (rows[n_models > 1] for rows in LLAMACPP_ROWS)
