"""Settings of metrics, spans and logs. Reading them needs no extra."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OTEL_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsSettings:
    """Settings of metrics, logs, spans and the witness log.

    `metrics_names` adds the names of "vllm" and "llamacpp". `otel` is the base URL of an OTLP/HTTP receiver,
    or "environment" for the variables of OpenTelemetry. Prompts and answers stay out of logs unless
    `log_prompts` is set, and out of spans unless `otel_content` is.
    """

    metrics: bool = True
    metrics_names: tuple[str, ...] = ()
    otel: str = ""
    otel_content: bool = False
    log_format: Literal["text", "json"] = "text"
    log_prompts: bool = False


def otel_of(flag: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The receiver of spans: the flag's, else the environment's, else none."""
    if flag:
        return flag.rstrip("/")
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return "environment" if not is_off and any(environment.get(name) for name in OTEL_VARIABLES) else ""
