"""Replay: a recorded answer comes out again bit for bit, and a changed record does not."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.witness import facts_of, forge

import camelid
from camelid.api.llm import LLM
from camelid.errors import ModelFormatError, RequestError
from camelid.loading.identity import Identity, model_sha256
from camelid.loading.model_file import find_source, open_model
from camelid.requests.output_text import Completion
from camelid.witness.log import WitnessLog
from camelid.witness.prompts import GivenPrompt, read_prompts
from camelid.witness.record import WitnessRecord
from camelid.witness.replay import Verdict, identity_mismatch, replay

BACKENDS = ("cpu", "reference")
cpu_alone = pytest.mark.parametrize("backend", ["cpu"], indirect=True)
MESSAGES = [{"role": "user", "content": "What is 12 plus 30?"}]
BIAS = {265: False, 9: 2.5}
CHOICE = ["big", "woolly", "shy"]
SHIFT = {"overflow": "shift", "n_keep": 3, "ignore_eos": True}
ADD: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]
CALLS: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
# cria is sure of its answers; so hot a draw depends on the seed at nearly each token.
HOT = {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
# Prompt and options of each recorded request; together they use every parameter of a record.
REQUESTS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "drawn": ("The llama", {**HOT, "max_tokens": 24}),
    "greedy chat": (MESSAGES, {"temperature": 0.0, "max_tokens": 40}),
    "drawn chat": (MESSAGES, {**HOT, "max_tokens": 40, "seed": 4}),
    "stop": ("The llama", {**HOT, "max_tokens": 40, "stop": ["e", "zz"], "ignore_eos": True}),
    "chat with stop": (MESSAGES, {"temperature": 0.0, "max_tokens": 40, "stop": ["=", "zz"]}),
    "host samplers": ("A", {"max_tokens": 16, "mirostat": 2, "temperature": 1.2, "logit_bias": BIAS}),
    "breakers": ("A a a", {"max_tokens": 16, "dry_multiplier": 0.9, "dry_sequence_breakers": ["a", "\n"]}),
    "constrained": ("A llama is", {**HOT, "max_tokens": 24, "choice": CHOICE}),
    "called": (MESSAGES, {**HOT, "max_tokens": 24, **CALLS}),
    "perhaps called": (
        MESSAGES,
        {"temperature": 1.5, "max_tokens": 24, "tools": TOOLS, "tool_choice": "auto"},
    ),
    "past the end": (MESSAGES, {"temperature": 0.7, "max_tokens": 30, "ignore_eos": True}),
    "shifted": ("Once upon a time", {**HOT, "max_tokens": 200, **SHIFT}),
    "full context": ("Once upon", {**HOT, "overflow": "stop", "ignore_eos": True}),
    "large seed": ("The llama", {**HOT, "max_tokens": 8, "seed": 2**64 - 1}),
    "speculative": ("1, 2, 3, 1, 2,", {"temperature": 0.0, "max_tokens": 12, "speculate": "ngram"}),
}
LOAD: dict[str, Any] = {"context": 128, "parallel": 5}


async def finished(
    llm: LLM, prompt: Any, options: Mapping[str, Any], choice: int = 0
) -> tuple[Any, Completion]:
    """A request that ran, and its answer."""
    request = replace(llm.request(prompt, **options), choice=choice)
    stream = await llm.asubmit(request)
    async for _ in stream:
        pass
    return request, stream.completion


def record_of(name: str, request: Any, completion: Completion) -> WitnessRecord:
    prompt, options = REQUESTS[name]
    return WitnessRecord.of(
        request, completion, id=name, key=None, endpoint="/", model="cria", stop=options.get("stop", ()),
        is_chat=not isinstance(prompt, str), prompt=prompt,
    )  # fmt: skip


async def record(paths: Mapping[bool, Path], backend: str) -> None:
    """Records every request while four others run beside it; half of them hit the prefix cache."""
    async with await camelid.aload("cria", backend=backend, **LOAD) as llm:
        models = {"cria": await llm.aidentity()}
        with ExitStack() as stack:
            logs = [
                stack.enter_context(WitnessLog.open(path, models, with_content=with_content))
                for with_content, path in paths.items()
            ]
            for number, (name, (prompt, options)) in enumerate(REQUESTS.items()):
                others = [("The", {"max_tokens": 30 + i, "temperature": 1.0, "seed": i}) for i in range(4)]
                runs = [(prompt, {"seed": number, **options}), *others]
                answers = await asyncio.gather(*(finished(llm, *run, choice=number % 3) for run in runs))
                for log in logs:
                    log.append(record_of(name, *answers[0]))
        assert llm.counters.decode_rows > 2 * llm.counters.steps_retired, "little ran beside"
        assert llm.counters.prefix_hits


@pytest.fixture(scope="module", params=share_of(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def logs(backend: str, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Logs without and with content."""
    folder = tmp_path_factory.mktemp("logs")
    paths = {with_content: folder / f"log-{with_content}" for with_content in (False, True)}
    asyncio.run(record(paths, backend))
    return paths


@pytest.fixture
def llm(backend: str) -> Iterator[LLM]:
    """A model that has run nothing."""
    with camelid.load("cria", backend=backend, **LOAD) as loaded:
        yield loaded


def verdicts(
    llm: LLM, path: Path, given: Mapping[str, GivenPrompt] | None = None, only: Container[str] = REQUESTS
) -> dict[str, Verdict]:
    """The verdict on each request of a log, or on those of `only`, by its id."""
    records = [facts for facts in facts_of(path) if facts["kind"] == "request" and facts["id"] in only]
    runs = {facts["id"]: lambda facts=facts: replay(llm, facts, given or {}) for facts in records}
    return {name: llm._runner.run(run()) for name, run in runs.items()}  # pyright: ignore[reportPrivateUsage]


def forged(path: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    copy = folder / "forged"
    copy.write_bytes(path.read_bytes())
    forge(copy, change)
    return copy


def test_answers_come_out_again_alone(llm: LLM, logs: dict[bool, Path]) -> None:
    found = verdicts(llm, logs[True])
    assert found.keys() == REQUESTS.keys()
    assert {name: verdict.detail for name, verdict in found.items() if not verdict.is_equal} == {}


def test_the_recorded_requests_differ_in_what_they_use(logs: dict[bool, Path]) -> None:
    """No answer is trivial: reasons of every kind, several choices, and answers of several tokens."""
    facts = {each["id"]: each for each in facts_of(logs[True]) if each["kind"] == "request"}
    assert {each["finish_reason"] for each in facts.values()} >= {"stop", "length"}
    assert {each["parameters"]["choice"] for each in facts.values()} == {0, 1, 2}
    assert facts["shifted"]["usage"]["completion_tokens"] == 200 > LOAD["context"]
    assert facts["full context"]["usage"]["completion_tokens"] < LOAD["context"]
    assert facts["stop"]["finish_reason"] == facts["chat with stop"]["finish_reason"] == "stop"
    assert facts["host samplers"]["parameters"]["sampling"]["logit_bias"] == [[265, False], [9, 2.5]]
    assert facts["past the end"]["parameters"]["eos_ids"] == []
    assert facts["constrained"]["content"]["text"] in CHOICE
    assert facts["constrained"]["content"]["constraint"] == {"choice": CHOICE}
    calls = facts["called"]["content"]["constraint"]["tool_calls"]
    assert (calls["choice"], calls["tools"], calls["parallel"]) == ("required", {"add": ADD}, False)
    assert facts["called"]["usage"]["completion_tokens"] > 8
    assert facts["perhaps called"]["content"]["constraint"]["tool_calls"]["choice"] == "auto"


def test_a_log_without_content_needs_its_prompts(llm: LLM, logs: dict[bool, Path], tmp_path: Path) -> None:
    alone = verdicts(llm, logs[False])
    assert all(verdict.is_equal is None for verdict in alone.values())
    named = (MESSAGES, "A llama is", "A")
    lines: list[dict[str, Any]] = [
        {"messages": MESSAGES},
        {"id": "constrained", "text": "A llama is", "constraint": {"choice": CHOICE}},
        {"messages": MESSAGES, **CALLS},
        {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "auto"},
        {"prompt_ids": list(llm.request("A").prompt_ids)},
        *({"text": prompt} for prompt, _ in REQUESTS.values() if prompt not in named),
    ]
    beside = tmp_path / "prompts"
    beside.write_text("\n".join(map(json.dumps, lines)) + "\n\n", "utf-8")
    found = verdicts(llm, logs[False], read_prompts(beside, llm))
    assert {name: verdict.detail for name, verdict in found.items() if not verdict.is_equal} == {}
    lines[1]["constraint"] = {"choice": CHOICE[1:]}
    del lines[2]["tool_choice"]
    beside.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = verdicts(llm, logs[False], read_prompts(beside, llm))
    unknown = {name: verdict for name, verdict in found.items() if not verdict.is_equal}
    assert [(name, verdict.is_equal) for name, verdict in unknown.items()] == [
        ("constrained", None),
        ("called", None),
    ]
    assert all("constraint is unknown" in verdict.detail for verdict in unknown.values())


@cpu_alone
def test_requests_of_one_prompt_have_constraints_of_their_own(llm: LLM, tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"choice": ["big"]}, {"choice": ["shy"]}, {}]

    async def work() -> list[Verdict]:
        with WitnessLog.open(tmp_path / "log", {}) as log:
            for each in options:
                request, answer = await finished(llm, "A llama is", {"max_tokens": 5, "seed": 1, **each})
                log.append(WitnessRecord.of(request, answer, id="", key=None, endpoint="/", model="cria"))
        lines = [json.dumps({"text": "A llama is", "constraint": each}) for each in options]
        (tmp_path / "prompts").write_text("\n".join(lines))
        given = read_prompts(tmp_path / "prompts", llm)
        records = [facts for facts in facts_of(tmp_path / "log") if facts["kind"] == "request"]
        return [await replay(llm, facts, given) for facts in records]

    found = llm._runner.run(work())  # pyright: ignore[reportPrivateUsage]
    assert [verdict.is_equal for verdict in found] == [True] * 3


@cpu_alone
def test_a_request_that_scored_its_prompt_is_not_computed(
    llm: LLM, logs: dict[bool, Path], tmp_path: Path
) -> None:
    found = verdicts(llm, forged(logs[True], tmp_path, change_parameter("scores_prompt", True)))
    assert {(verdict.is_equal, verdict.detail) for verdict in found.values()} == {
        (None, "it scored its prompt and generated nothing")
    }


def change_parameter(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(facts: dict[str, Any]) -> None:
        place = facts["parameters"]
        (place if name in place else place["sampling"])[name] = value

    return change


@cpu_alone
@pytest.mark.parametrize(
    ("change", "differ"),
    [
        (change_parameter("seed", 12345), {"drawn", "drawn chat", "shifted", "full context"}),
        (change_parameter("choice", 7), {"drawn", "shifted", "full context"}),
        (change_parameter("temperature", 0.9), {"drawn chat"}),
        (change_parameter("stop", []), {"stop"}),
        (change_parameter("eos_ids", []), {"greedy chat"}),
        (change_parameter("n_keep", 40), {"shifted"}),
        (change_parameter("max_tokens", 3), {"greedy chat", "shifted"}),
        (lambda facts: facts["content"]["answer_ids"].append(5), set(REQUESTS)),
        (lambda facts: facts["content"]["prompt_ids"].append(5), set(REQUESTS)),
        (lambda facts: facts["content"].update(constraint={"regex": "a*"}), set(REQUESTS)),
        (lambda facts: facts.update(answer_sha256="0" * 64), set(REQUESTS)),
        (lambda facts: facts.update(text_sha256="0" * 64), {"drawn", "stop", "shifted"}),
        (lambda facts: facts.update(finish_reason="length"), {"greedy chat"}),
    ],
)  # fmt: skip
def test_a_forged_record_differs(
    llm: LLM, logs: dict[bool, Path], tmp_path: Path, change: Any, differ: set[str]
) -> None:
    """The hashes of the forged log are right."""
    found = verdicts(llm, forged(logs[True], tmp_path, change), only=differ)
    assert {name for name, verdict in found.items() if verdict.is_equal is False} == differ


@cpu_alone
def test_the_first_differing_token_is_named(llm: LLM, logs: dict[bool, Path], tmp_path: Path) -> None:
    def change(facts: dict[str, Any]) -> None:
        ids = facts["content"]["answer_ids"]
        ids[2:3] = [ids[2] + 1]
        packed = b"".join(i.to_bytes(4, "little") for i in ids)
        facts["answer_sha256"] = hashlib.sha256(packed).hexdigest()

    detail = verdicts(llm, forged(logs[True], tmp_path, change))["drawn"].detail
    ids = next(facts for facts in facts_of(logs[True]) if facts.get("id") == "drawn")["content"]["answer_ids"]
    assert detail == f"differs at token 2: recorded {ids[2] + 1}, computed {ids[2]}"


@cpu_alone
def test_an_answer_cut_off_is_compared_as_far_as_it_came(
    llm: LLM, logs: dict[bool, Path], tmp_path: Path
) -> None:
    def cut(facts: dict[str, Any]) -> None:
        ids = facts["content"]["answer_ids"]
        del ids[4:]
        facts["usage"]["completion_tokens"] = len(ids)
        packed = b"".join(i.to_bytes(4, "little") for i in ids)
        facts |= {"answer_sha256": hashlib.sha256(packed).hexdigest(), "finish_reason": "cancelled"}

    found = verdicts(llm, forged(logs[True], tmp_path, cut))
    assert {name for name, verdict in found.items() if not verdict.is_equal} == set()


@cpu_alone
def test_an_answer_without_tokens_has_nothing_to_compare(
    llm: LLM, logs: dict[bool, Path], tmp_path: Path
) -> None:
    def cut(facts: dict[str, Any]) -> None:
        facts["content"]["answer_ids"] = []
        facts["usage"]["completion_tokens"] = 0
        facts |= {"answer_sha256": hashlib.sha256(b"").hexdigest(), "finish_reason": "timeout"}

    found = verdicts(llm, forged(logs[True], tmp_path, cut))
    assert {verdict.is_equal for verdict in found.values()} == {None}


@cpu_alone
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"text": "a", "messages": MESSAGES}, "'text', 'messages', expected one of"),
        ({"id": "a"}, "no prompt, expected one of"),
        ({"text": "a", "tools": []}, "'tools', expected one of"),
        ({"text": "a", "hash": "0"}, "have hash .*, but the line states '0'"),
    ],
)
def test_a_bad_line_of_prompts_is_named(llm: LLM, tmp_path: Path, line: Any, words: str) -> None:
    (tmp_path / "prompts").write_text('{"text": "fine"}\n' + json.dumps(line))
    with pytest.raises(RequestError, match=f"line 2: .*{words}"):
        read_prompts(tmp_path / "prompts", llm)
    (tmp_path / "prompts").write_text('{"text": "fine"}\n{')
    with pytest.raises(ModelFormatError, match="line 2: not valid JSON"):
        read_prompts(tmp_path / "prompts", llm)


def test_the_identity_of_a_model_is_its_files_hash(llm: LLM, backend: str) -> None:
    identity = llm._runner.run(llm.aidentity())  # pyright: ignore[reportPrivateUsage]
    data = (resources.files("camelid") / "data" / "cria.gguf").read_bytes()
    assert identity.model_sha256 == hashlib.sha256(data).hexdigest()
    assert (identity.build["backend"], identity.build["promise"]) == (backend, "A+B")
    assert identity.options["context"] == 128
    options: dict[str, Any] = dict(identity.options)
    again = camelid.load(identity.file, **options)
    assert again._runner.run(again.aidentity()) == identity  # pyright: ignore[reportPrivateUsage]
    again.close()


def test_a_build_that_differs_is_named() -> None:
    here = Identity(file="", model_sha256="", build={"backend": "cpu", "version": "2"}, options={})
    assert identity_mismatch({"build": dict(here.build)}, here) == ""
    assert identity_mismatch({"build": {"backend": "cpu", "version": "1"}}, here) == "version was '1', is '2'"


def test_the_hash_of_several_files_is_that_of_their_lines(tmp_path: Path) -> None:
    """As `sha256sum` prints them, sorted by name."""
    write_tiny_llama(tmp_path / "a.gguf", seed=1)
    (tmp_path / "b").write_bytes(b"b")
    file = asyncio.run(open_model(str(tmp_path / "a.gguf")))
    both = replace(file, origins={name: find_source(tmp_path / name) for name in ("b", "a.gguf")})
    lines = [
        f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in ("a.gguf", "b")
    ]
    assert asyncio.run(model_sha256(both)) == hashlib.sha256("".join(lines).encode()).hexdigest()
