"""The server's present load as JSON, for the page's live panel."""

from __future__ import annotations

from typing import Any

from camelid.server.metrics.histogram import percentile
from camelid.server.metrics.live import Steps
from camelid.server.metrics.snapshot import ModelFacts, Snapshot, resident_bytes, uptime_s

Body = dict[str, Any]


def stats_object(snapshot: Snapshot, phase: str) -> Body:
    """The reply of GET /v1/stats."""
    return {
        "object": "stats",
        "phase": phase,
        "uptime_s": uptime_s(snapshot.started),
        "resident_bytes": resident_bytes(),
        "models": [model_object(model, snapshot.tally.now()) for model in snapshot.models],
    }


def model_object(model: ModelFacts, now: float) -> Body:
    """One model's load, rates of the last seconds, and times of its latest steps."""
    load, tally = model.load, model.tally
    return {
        "id": model.name,
        "state": model.state,
        "n_running": load.n_running,
        "n_waiting": load.n_waiting,
        "places": {"taken": model.n_places, "all": model.n_capacity},
        "tokens_per_second": {
            "prompt": tally.prompt_rate.per_second(now),
            "answer": tally.answer_rate.per_second(now),
        },
        "tokens": {
            "prompt": model.sum(lambda s: s.n_prompt),
            "cached": model.sum(lambda s: s.n_cached),
            "answer": model.sum(lambda s: s.n_answer),
        },
        "kv_bytes": {"held": load.held_bytes, "cached": load.cached_bytes, "total": load.total_bytes},
        "steps": {program: steps_object(steps) for program, steps in model.steps()},
    }


def steps_object(steps: Steps) -> Body:
    """Number of a program's steps, and percentiles of the latest."""
    recent = sorted(steps.recent)
    return {
        "n": steps.seconds.n,
        "p50_ms": 1e3 * percentile(recent, 0.5),
        "p99_ms": 1e3 * percentile(recent, 0.99),
    }
