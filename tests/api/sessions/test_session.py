"""Sessions: turns that compute only new tokens, stable ids, truncated answers, tools, forks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.gguf_files import CHATML, write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.api.sessions.session import Session, Turn
from camelid.engine.stream import Stream
from camelid.errors import BackendError, ContextOverflowError, RequestError, TemplateError
from camelid.requests.output_text import Completion, Event

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12}
HERMES = (
    "{% if tools %}{{ '<|im_start|>tools ' }}{{ tools | tojson }}"
    "{{ '<tool_call>{name, arguments}</tool_call>' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' }}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ '<tool_call>\n' }}"
    '{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}'
    "{{ '\n</tool_call>' }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant ' }}{% endif %}"
    "{% if enable_thinking is defined %}{{ '<think></think>' }}{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": "30"}}\n</tool_call>'
SUM = {"name": "add", "arguments": '{"a": 12, "b": "30"}'}


def tiny(path: Path, template: str = CHATML) -> Path:
    """A random model without end tokens."""
    write_tiny_llama(path, seed=5, hidden=64, head_dim=16, ffn=96, context=1024, template=template)
    return path


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    place = tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with camelid.load(place, backend="reference", context=1024) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tools_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    place = tiny(tmp_path_factory.mktemp("model") / "tools.gguf", HERMES)
    with camelid.load(place, backend="reference", context=1024) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def base_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    place = tiny(tmp_path_factory.mktemp("model") / "base.gguf", "")
    with camelid.load(place, backend="reference", context=1024) as loaded:
        yield loaded


def said(session: Session) -> list[tuple[object, object]]:
    return [(message["role"], message["content"]) for message in session.messages]


def test_next_turns_compute_only_their_new_tokens(llm: LLM) -> None:
    session = llm.session()
    old: list[int] = []
    for i, text in enumerate(("the llama", "and the river?", "why")):
        before = llm.counters.prefill_rows
        done = session.generate(text, **GREEDY)
        prompt = session.token_ids[: done.usage.prompt_tokens]
        assert prompt[: len(old)] == old, "earlier ids changed"
        assert done.usage.cached_tokens >= len(old) - 1
        assert llm.counters.prefill_rows - before == len(prompt) - done.usage.cached_tokens < 40
        assert session.token_ids == [*prompt, *done.token_ids]
        assert said(session)[2 * i :] == [("user", text), ("assistant", done.text)]
        old = session.token_ids


def test_answers_equal_those_of_the_same_ids_alone(llm: LLM) -> None:
    session = llm.session()
    for text in ("the llama", "and then", "the end"):
        start = len(session.token_ids)
        done = session.generate(text, temperature=1.0, seed=7, max_tokens=9)
        prompt = session.token_ids[: -len(done.token_ids)]
        assert len(prompt) > start
        alone = llm.generate(prompt, temperature=1.0, seed=7, max_tokens=9, cache_prompt=False)
        assert alone.usage.cached_tokens == 0
        assert done.token_ids == alone.token_ids, "draws are not keyed by the position over all turns"


def test_ids_decode_to_the_rendered_conversation(llm: LLM) -> None:
    session = llm.session()
    session.system = "be brief"
    for text in ("the llama", "{{ 7 }} <|im_end|>", "ümlaut 😀"):
        session.generate(text, **GREEDY)
    whole = llm.render([*session.messages, {"role": "user", "content": "so"}])
    session.generate("so", temperature=0.0, max_tokens=1)
    ids = session.token_ids[:-1]
    assert llm.tokenizer.decode(ids, special=True) == llm.tokenizer.decode(whole, special=True)
    assert ids != whole, "the random answer equals its `encode` tokenization"


def test_a_stop_string_leaves_no_ids_behind(llm: LLM) -> None:
    session = llm.session()
    done = session.generate("x", choice=["one two three"], stop="o th", max_tokens=30)
    assert (done.text, done.finish_reason) == ("one tw", "stop")
    kept = session.token_ids[done.usage.prompt_tokens :]
    assert done.text.startswith(llm.detokenize(kept)) and len(kept) < len(done.token_ids)
    n_old = len(session.token_ids)
    after = session.generate("y", **GREEDY)
    assert after.usage.cached_tokens >= n_old - 1
    assert f"<|im_start|>assistant\n{done.text}<|im_end|>" in llm.tokenizer.decode(
        session.token_ids, special=True
    )


def test_truncated_answers_are_kept(llm: LLM) -> None:
    session = llm.session()
    stream = session.stream("the llama", temperature=0.0, max_tokens=50)
    text = "".join(next(stream).text for _ in range(5))
    stream.close()
    assert llm.is_idle
    (_, question), (role, answer) = said(session)
    assert (question, role) == ("the llama", "assistant")
    assert str(answer).startswith(text) and 0 < len(str(answer)) < 200
    n_old = len(session.token_ids)
    assert session.generate("go on", **GREEDY).usage.cached_tokens >= n_old - 1


def test_leaving_the_async_loop_keeps_the_answer(tmp_path: Path) -> None:
    async def talk() -> list[tuple[object, object]]:
        async with await camelid.aload(tiny(tmp_path / "m.gguf"), backend="reference") as llm:
            session = llm.session()
            async for _ in (stream := session.astream("the llama", temperature=0.0, max_tokens=50)):
                break
            await stream.aclose()
            done = await session.agenerate("so", **GREEDY)
            assert done.usage.cached_tokens > 0
            return said(session)

    assert [role for role, _ in asyncio.run(talk())] == ["user", "assistant"] * 2


def test_dropping_a_turn_ends_it(tmp_path: Path) -> None:
    async def talk() -> list[tuple[object, object]]:
        async with await camelid.aload(tiny(tmp_path / "m.gguf"), backend="reference") as llm:
            session = llm.session()
            turn = await session.start("the llama", temperature=0.0, max_tokens=50)
            await anext(turn)
            del turn
            assert (await session.agenerate("so", **GREEDY)).text and llm.is_idle
            return said(session)

    assert [role for role, _ in asyncio.run(talk())] == ["user", "assistant"] * 2


def test_failed_turns_leave_no_trace(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    session = llm.session()
    session.generate("the llama", **GREEDY)
    before = said(session), session.token_ids
    with pytest.raises(ContextOverflowError):
        session.generate("the llama " * 400)
    with pytest.raises(RequestError, match="temprature"):
        session.generate("so", temprature=1)  # type: ignore[call-arg]

    async def fail(ticket: object) -> object:
        raise BackendError("backend 'reference': it is gone now, alas", backend="reference")

    with monkeypatch.context() as patch:
        patch.setattr(llm._running.backend, "read", fail)  # type: ignore[reportPrivateUsage]
        with pytest.raises(BackendError, match="gone"):
            session.generate("so", **GREEDY)
    assert (said(session), session.token_ids) == before
    assert session.generate("so", **GREEDY).text


def test_one_turn_at_a_time(llm: LLM) -> None:
    session = llm.session("mine")
    stream = session.stream("the llama", **GREEDY)
    next(stream)
    for act in (lambda: session.generate("so"), session.fork, session.reset, lambda: session.save("x")):
        with pytest.raises(RequestError, match=r"session 'mine' is still answering"):
            act()
    stream.close()
    assert session.generate("so", **GREEDY).text


def test_forks_diverge_from_shared_rows(llm: LLM) -> None:
    session = llm.session()
    session.options = {"temperature": 0.0, "max_tokens": 6}
    session.generate("the llama")
    twin = session.fork("twin")
    ways = [s.generate(text) for s, text in ((session, "left"), (twin, "right"))]
    assert all(done.usage.cached_tokens >= 20 for done in ways)
    assert (twin.id, len(twin.messages), len(session.messages)) == ("twin", 4, 4)
    assert said(session)[2:] != said(twin)[2:] and said(session)[:2] == said(twin)[:2]
    prompt = twin.token_ids[: -len(ways[1].token_ids)]
    alone = llm.generate(prompt, temperature=0.0, max_tokens=6, cache_prompt=False)
    assert ways[1].token_ids == alone.token_ids


def test_changes_in_a_fork_do_not_affect_its_origin(llm: LLM) -> None:
    session = llm.session()
    session.messages = [{"role": "user", "content": "the llama"}]
    session.options = {"stop": ["a"]}
    twin = session.fork()
    cast("dict[str, Any]", twin.messages[0])["content"] = "the alpaca"
    twin.options["stop"].append("b")
    assert (said(session), session.options) == ([("user", "the llama")], {"stop": ["a"]})


def test_system_and_reset(llm: LLM) -> None:
    session = llm.session()
    assert session.system is None
    session.system = "be brief"
    session.generate("the llama", **GREEDY)
    session.system = "be long"
    assert said(session)[0] == ("system", "be long") and len(session.messages) == 3
    session.generate("so", **GREEDY)
    assert "be brief" not in llm.tokenizer.decode(session.token_ids)
    session.system = None
    assert said(session)[0] == ("user", "the llama")
    session.system = "be brief"
    session.reset()
    assert (said(session), session.token_ids) == ([("system", "be brief")], [])


def test_edited_messages_are_recomputed(llm: LLM) -> None:
    session = llm.session()
    session.generate("the llama", **GREEDY)
    session.generate("and then", **GREEDY)
    session.messages[3] = {"role": "assistant", "content": "the river"}
    done = session.generate("so", **GREEDY)
    text = llm.tokenizer.decode(session.token_ids, special=True)
    assert "<|im_start|>assistant\nthe river<|im_end|>" in text
    assert done.usage.cached_tokens > 20, "rows before the edit were recomputed"


def test_calls_continue_with_their_results(tools_llm: LLM) -> None:
    session = tools_llm.session()
    done = session.generate("the sum", tools=TOOLS, choice=[f"Well.{CALL}"])
    call = session.messages[-1]
    assert (call["content"], call["tool_calls"]) == (
        "Well.", [{"id": done.tool_calls[0].id, "type": "function", "function": SUM}],
    )  # fmt: skip
    n_old = len(session.token_ids)
    session.messages.append({"role": "tool", "tool_call_id": done.tool_calls[0].id, "content": "42"})
    done = session.generate(tools=TOOLS, **GREEDY)
    assert done.usage.cached_tokens >= n_old - 1, "the template renders the call differently"
    text = tools_llm.tokenizer.decode(session.token_ids, special=True)
    assert f"Well.{CALL}<|im_end|><|im_start|>tool 42<|im_end|><|im_start|>assistant " in text


def test_incomplete_calls_are_not_passed_on(tools_llm: LLM) -> None:
    session = tools_llm.session()
    session.generate("the sum", tools=TOOLS, choice=[f"Well.{CALL}"], max_tokens=50)
    assert session.messages[-1] == {"role": "assistant", "content": "Well."}
    assert session.generate("so", tools=TOOLS, **GREEDY).text


def test_a_refusing_template_leaves_the_session_unchanged(tmp_path: Path) -> None:
    place = tiny(tmp_path / "m.gguf", "{{ raise_exception('roles must alternate') }}")
    with camelid.load(place, backend="reference") as llm:
        session = llm.session()
        with pytest.raises(TemplateError, match="alternate"):
            session.generate("x")
        assert session.messages == []


def test_models_without_a_template_continue_the_text(base_llm: LLM) -> None:
    session = base_llm.session()
    first = session.generate("the llama and", **GREEDY)
    n_old = len(session.token_ids)
    second = session.generate(" the river", **GREEDY)
    assert second.usage.cached_tokens >= n_old - 1
    last = session.generate(**GREEDY)
    text = base_llm.tokenizer.decode(session.token_ids)
    assert text == f"the llama and{first.text} the river{second.text}{last.text}"
    with pytest.raises(RequestError, match="tools applies to a chat template, and this model"):
        session.generate("x", tools=TOOLS)


def test_options_stay_until_they_are_changed(llm: LLM) -> None:
    session = llm.session()
    session.options = {"temperature": 0.0, "max_tokens": 3}
    asked: list[dict[str, Any]] = [{}, {"max_tokens": 5}, {}]
    assert [len(session.generate("a", **options).token_ids) for options in asked] == [3, 5, 3]


def test_a_full_context_drops_the_oldest_turns(tmp_path: Path) -> None:
    with camelid.load(tiny(tmp_path / "m.gguf"), backend="reference", context=160) as llm:
        session = llm.session()
        session.system = "be brief"
        session.options = {"temperature": 0.0, "max_tokens": 20, "overflow": "shift"}
        forgotten: list[int] = []
        for i in range(8):
            done = session.generate(f"the llama {i}")
            forgotten.append(session.n_forgotten)
            assert done.usage.prompt_tokens < 160
            has_cut = len(forgotten) > 1 and forgotten[-1] > forgotten[-2]
            assert not has_cut or done.usage.prompt_tokens <= 160 // 2, "a shift left no room for later turns"
        text = llm.tokenizer.decode(session.token_ids)
        assert "be brief" in text and "the llama 7" in text and "the llama 0" not in text
        assert len(session.messages) == 17 and forgotten[0] == 0 and forgotten[-1] > 4
        steps = [b - a for a, b in pairwise(forgotten)]
        assert all(n % 2 == 0 for n in steps) and steps.count(0) >= 4, "a shift occurred at every turn"
        session.save(tmp_path / "s")
        again = llm.restore(tmp_path / "s")
        assert again.n_forgotten == session.fork().n_forgotten == forgotten[-1]
        assert again.generate("so").token_ids == session.generate("so").token_ids
        session.messages = [{"role": "user", "content": "the river"}]
        session.generate("and")
        assert "the river" in llm.tokenizer.decode(session.token_ids) and session.n_forgotten == 0
        session.reset()
        with pytest.raises(ContextOverflowError):
            session.generate("the llama " * 200)


def test_an_answers_message_has_its_reasoning(tools_llm: LLM) -> None:
    session = tools_llm.session()
    done: Completion = session.generate("x", tools=TOOLS, choice=["<think>hm</think>Well."])
    assert done.reasoning == "hm"
    assert session.messages[-1] == {"role": "assistant", "content": "Well.", "reasoning_content": "hm"}
    assert session.generate("so", tools=TOOLS, **GREEDY).text, "the next turn is empty"
    assert "hm" not in tools_llm.detokenize(session.token_ids)


def test_cria_answers_as_to_a_whole_conversation() -> None:
    """Its ids equal `encode`'s, so keeping them changes no answer."""
    with camelid.load("cria", backend="reference") as llm:
        session = llm.session()
        for text in ("What is 12 plus 30?", "What is the capital of France?", "Who are you?"):
            asked = [*session.messages, {"role": "user", "content": text}]
            done = session.generate(text, temperature=0.0, max_tokens=32)
            assert done.text == llm.chat(asked, temperature=0.0, max_tokens=32, cache_prompt=False).text
        assert done.usage.cached_tokens > done.usage.prompt_tokens // 2


class SlowStream:
    """A stream whose last step is still running when it is closed."""

    is_settled = False
    completion = SimpleNamespace(finish_reason="cancelled")

    async def __anext__(self) -> Event:
        return Event("a", 1, 0.0)

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.is_settled = True


def test_a_turn_ends_once_when_its_units_are_free() -> None:
    stream, ends = SlowStream(), list[bool]()
    turn = Turn(cast(Stream, stream), lambda done: ends.append(stream.is_settled))

    async def leave() -> None:
        assert (await anext(turn)).text == "a"
        await turn.aclose()
        await turn.aclose()

    asyncio.run(leave())
    assert ends == [True]
