"""POST /completion: llama.cpp's fields, and the library's answers, whole and streamed."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served import Served, served
from tests.support.served_here import until

import camelid
from camelid.api.llm import LLM

PATH = "/completion"
PROMPT = "<|im_start|>user\nTell me a story about a fish.<|im_end|>\n<|im_start|>assistant\n"
FREE: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "ignore_eos": True}
STOPPED_FIELDS = {
    "index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
    "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word",
    "tokens_cached", "timings",
}  # fmt: skip


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


def ask(server: Served, **fields: Any) -> Any:
    reply = server.post(PATH, {"prompt": PROMPT, "n_predict": 12, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def chunks(server: Served, **fields: Any) -> list[dict[str, Any]]:
    return list(server.stream(PATH, {"prompt": PROMPT, "n_predict": 12, "stream": True, **fields}))


@pytest.mark.parametrize("seed", range(3))
def test_whole_and_streamed_answers_are_the_librarys(server: Served, llm: LLM, seed: int) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": seed, "repeat_penalty": 1.2, "min_p": 0.01}
    wanted = llm.generate(PROMPT, special=True, max_tokens=24, **options)
    whole = ask(server, n_predict=24, return_tokens=True, **options)
    assert (whole["content"], whole["tokens"]) == (wanted.text, wanted.token_ids)
    *parts, last = chunks(server, n_predict=24, **options)
    assert "".join(part["content"] for part in (*parts, last)) == wanted.text
    assert [i for part in parts for i in part["tokens"]] == wanted.token_ids
    assert not any(part["stop"] for part in parts)
    assert last["stop"] is True


def test_the_final_object_has_every_field(server: Served) -> None:
    body = ask(server, seed=3, **FREE)
    assert set(body) == STOPPED_FIELDS
    assert body["tokens"] == []
    assert body["prompt"] == PROMPT
    assert body["tokens_predicted"] == body["timings"]["predicted_n"] == 12
    assert body["timings"]["prompt_n"] + body["timings"]["cache_n"] == body["tokens_evaluated"]
    assert body["tokens_cached"] == body["tokens_evaluated"] + 11
    assert (body["stop_type"], body["truncated"]) == ("limit", False)
    settings = body["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["temperature"]) == (12, 3, 1.5)


def test_a_stream_repeats_no_text_in_its_last_object(server: Served) -> None:
    *parts, last = chunks(server, **FREE)
    assert (last["content"], last["tokens"]) == ("", [])
    assert set(last) == STOPPED_FIELDS
    assert [part["tokens_predicted"] for part in parts] == list(range(1, 13))
    assert all(len(part["tokens"]) == 1 for part in parts)
    assert {part["id_slot"] for part in (*parts, last)} == {0}


def test_text_that_a_stop_withheld_is_in_the_last_object_if_wanted(server: Served) -> None:
    fields: dict[str, Any] = {"temperature": 0, "n_predict": 400}
    whole = ask(server, **fields)
    assert whole["stop_type"] == "eos"  # no token follows the text
    fields["stop"] = [whole["content"][-1] + "nowhere at all"]
    assert chunks(server, **fields)[-1]["content"] == whole["content"][-1]
    assert chunks(server, response_fields=["stop"], **fields)[-1] == {"stop": True}


def test_every_way_to_stop_has_its_name(server: Served) -> None:
    text = ask(server, n_predict=40, seed=1, **FREE)["content"]
    word = text[5:9]
    stopped = ask(server, n_predict=40, seed=1, stop=["nowhere at all", word], **FREE)
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == text[: text.index(word)]
    ended = ask(server, n_predict=-1, temperature=0)
    assert (ended["stop_type"], ended["stopping_word"], ended["truncated"]) == ("eos", "", False)


def test_an_answer_without_bound_ends_with_the_context(server: Served) -> None:
    body = ask(server, prompt=[7] * 1000, n_predict=-1, **FREE)
    assert (body["truncated"], body["stop_type"], body["tokens_predicted"]) == (True, "limit", 24)
    full = ask(server, prompt=[7] * 1000, n_predict=24, **FREE)
    assert (full["truncated"], full["tokens_predicted"]) == (False, 24)
    reply = server.post(PATH, {"prompt": [7] * 1024})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert "exceeds the available context size" in error["message"]
    assert (error["type"], error["n_prompt_tokens"], error["n_ctx"]) == (
        "exceed_context_size_error",
        1024,
        1024,
    )


def test_a_shift_drops_old_tokens_where_the_server_allows_it() -> None:
    with served("--backend", "cpu", "--context-shift", "-c", "64") as server:
        body = ask(server, prompt=[7] * 50, n_predict=40, **FREE)
        assert (body["truncated"], body["tokens_predicted"]) == (True, 40)
        kept = ask(server, prompt=list(range(50)), n_predict=30, n_keep=-1, **FREE)
        assert kept["generation_settings"]["n_keep"] == 50
        reply = server.post(PATH, {"prompt": "x", "n_discard": 3})
        assert reply.status_code == 400, "only half can be discarded"


def test_no_prediction_fills_the_cache(server: Served) -> None:
    prompt = list(range(100, 175))
    first = ask(server, prompt=prompt, n_predict=0)
    assert (first["content"], first["tokens_predicted"], first["timings"]["predicted_n"]) == ("", 0, 0)
    assert first["generation_settings"]["n_predict"] == 0
    assert chunks(server, prompt=prompt, n_predict=0)[0]["stop"], "only the final object"
    again = ask(server, prompt=prompt, n_predict=1)
    assert (again["timings"]["cache_n"], again["timings"]["prompt_n"]) == (74, 1)
    assert ask(server, prompt=prompt, n_predict=1, cache_prompt=False)["timings"]["cache_n"] == 0


def test_prompts_in_every_form(server: Served) -> None:
    token_ids = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json()["tokens"]
    fields = {"temperature": 0, "n_predict": 6}
    wanted = ask(server, **fields)["content"]
    assert ask(server, prompt=token_ids, **fields)["content"] == wanted
    assert ask(server, prompt={"prompt_string": PROMPT}, **fields)["content"] == wanted
    mixed = [*token_ids[:3], server.post("/detokenize", {"tokens": token_ids[3:]}).json()["content"]]
    assert ask(server, prompt=mixed, **fields)["prompt"] == PROMPT
    several = ask(server, prompt=[token_ids, PROMPT, {"prompt_string": PROMPT}, mixed], **fields)
    assert [body["index"] for body in several] == [0, 1, 2, 3]
    assert {body["content"] for body in several} == {wanted}
    assert ask(server, prompt=[PROMPT], **fields)["content"] == wanted, "one prompt is no list"


def test_a_stream_of_several_prompts_has_the_texts_of_each(server: Served) -> None:
    prompts = [[200, 201, 202], "Hello there", [5] * 40]
    wholes = ask(server, prompt=prompts, seed=4, **FREE)
    texts, stopped = [""] * 3, [False] * 3
    for part in chunks(server, prompt=prompts, seed=4, **FREE):
        assert not stopped[part["index"]]
        texts[part["index"]] += part["content"]
        stopped[part["index"]] = part["stop"]
    assert texts == [body["content"] for body in wholes]
    assert all(stopped)


def test_choices_of_one_prompt(server: Served) -> None:
    bodies = ask(server, n_cmpl=3, seed=4, **FREE)
    assert [body["index"] for body in bodies] == [0, 1, 2]
    assert len({body["content"] for body in bodies}) == 3
    assert bodies == sorted(bodies, key=lambda body: body["index"])
    assert [body["content"] for body in ask(server, n=3, seed=4, **FREE)] == [b["content"] for b in bodies]


def test_response_fields_select_nested_values(server: Served) -> None:
    paths = ["content", "generation_settings/n_predict", "prompt", "timings/nothing", "nothing"]
    body = ask(server, response_fields=paths)
    assert set(body) == set(paths[:3])
    assert body["generation_settings/n_predict"] == 12
    assert set(ask(server, response_fields=[])) == STOPPED_FIELDS


@pytest.mark.parametrize("is_streamed", [False, True])
def test_probabilities_of_the_model_are_the_librarys(server: Served, llm: LLM, *, is_streamed: bool) -> None:
    fields = {"n_probs": 5, "temperature": 0, "n_predict": 6, "ignore_eos": True}
    found = (
        [entry for part in chunks(server, **fields)[:-1] for entry in part["completion_probabilities"]]
        if is_streamed
        else ask(server, **fields)["completion_probabilities"]
    )
    bans: Any = dict.fromkeys(sorted(llm.tokenizer.eos_ids), False)
    events = list(
        llm.stream(PROMPT, special=True, logprobs=5, temperature=0.0, max_tokens=6, logit_bias=bans)
    )
    assert [entry["id"] for entry in found] == [event.token_id for event in events]
    assert [entry["logprob"] for entry in found] == [event.logprob for event in events]
    for entry, event in zip(found, events, strict=True):
        assert [(top["id"], top["logprob"]) for top in entry["top_logprobs"]] == list(event.top_logprobs)
        assert set(entry) == {"id", "token", "bytes", "logprob", "top_logprobs"}


def test_probabilities_after_the_samplers(server: Served) -> None:
    fields = {"n_probs": 10, "post_sampling_probs": True, "n_predict": 8}
    greedy = ask(server, temperature=0, **fields)["completion_probabilities"]
    for entry in greedy:
        assert entry["prob"] == 1
        assert [top["prob"] for top in entry["top_probs"]] == [1.0] + [0.0] * 9
    plain = ask(server, temperature=1, top_k=2, top_p=1, min_p=0, seed=1, **fields)
    raw = ask(server, temperature=1, top_k=2, top_p=1, min_p=0, seed=1, n_predict=8, n_probs=2)
    for entry, before in zip(plain["completion_probabilities"], raw["completion_probabilities"], strict=True):
        weights = [math.exp(top["logprob"]) for top in before["top_logprobs"]]
        wanted = [weight / sum(weights) for weight in weights] + [0.0] * 8
        assert [top["prob"] for top in entry["top_probs"]] == pytest.approx(wanted)
        assert 0 < entry["prob"] <= 1
    dropping = {"xtc_probability": 0.5, "xtc_threshold": 0.02, "seed": 2, "temperature": 1.5, "top_k": 10}
    xtc = ask(server, **{**fields, **dropping, "n_predict": 40, "min_p": 0, "ignore_eos": True})
    assert all(entry["prob"] > 0 for entry in xtc["completion_probabilities"]), "the same tokens are dropped"
    refused = server.post(PATH, {"prompt": "a", "grammar": 'root ::= "a"', **fields})
    assert refused.status_code == 400


def test_biases_by_id_and_by_text(server: Served) -> None:
    banned = ask(server, temperature=0, n_predict=1, return_tokens=True)["tokens"][0]
    text = server.post("/detokenize", {"tokens": [banned]}).json()["content"]
    for bias in ([[banned, False]], [[text, -100]], {str(banned): -100}, {text: False}):
        body = ask(server, temperature=0, logit_bias=bias, return_tokens=True)
        assert banned not in body["tokens"]
    shown = ask(server, logit_bias=[[5, False], [" the", -1.5]])["generation_settings"]["logit_bias"]
    assert shown[0] == {"bias": None, "token": 5}
    assert [entry["bias"] for entry in shown[1:]] == [-1.5]


def test_ignored_end_tokens_are_banned_and_shown(server: Served) -> None:
    on = ask(server, ignore_eos=True)["generation_settings"]
    assert [entry["bias"] for entry in on["logit_bias"]] == [None, None]
    assert on["ignore_eos"] is True
    off = ask(server, ignore_eos=False)["generation_settings"]
    assert (off["logit_bias"], off["ignore_eos"]) == ([], False)


def test_samplers_have_an_order(server: Served) -> None:
    names = ask(server, samplers=["temperature", "top-k", "typ_p"])["generation_settings"]["samplers"]
    assert names == ["temperature", "top_k", "typ_p"]
    assert ask(server, samplers="tky")["generation_settings"]["samplers"] == names
    default = ask(server)["generation_settings"]["samplers"]
    assert default[0] == "penalties"
    assert default[-1] == "temperature"


def test_a_random_seed_differs_and_is_told(server: Served) -> None:
    seeds = {ask(server, n_predict=1, seed=-1)["generation_settings"]["seed"] for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_grammar_and_a_schema_bind_the_answer(server: Served) -> None:
    assert ask(server, grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert ask(server, json_schema=schema, n_predict=30)["content"].lstrip().startswith("{")


def test_progress_tells_the_cached_and_computed_part_of_a_prompt(server: Served) -> None:
    prompt = [(i * 7) % 900 + 10 for i in range(300)]
    for n_cached in (0, 299):
        parts = chunks(server, prompt=prompt, n_predict=2, return_progress=True)
        reports = [part["prompt_progress"] for part in parts if "prompt_progress" in part]
        assert reports[0]["processed"] == reports[0]["cache"] == n_cached
        assert {report["total"] for report in reports} == {300}
        done = [report["processed"] for report in reports]
        assert done == sorted(set(done))
        assert done[-1] == 300
        assert "prompt_progress" not in parts[len(reports)], "reports come first"
    assert not any("prompt_progress" in part for part in chunks(server))


def test_timings_come_with_every_token_if_asked(server: Served) -> None:
    parts = chunks(server, timings_per_token=True, **FREE)
    assert [part["timings"]["predicted_n"] for part in parts[:-1]] == list(range(1, 13))
    assert all("prompt_per_second" in part["timings"] for part in parts)
    assert not any("timings" in part for part in chunks(server, **FREE)[:-1])


def test_a_time_limit_ends_the_answer_at_a_line(server: Served) -> None:
    body = ask(server, n_predict=-1, grammar='root ::= "a\\n"{1500}', t_max_predict_ms=1)
    assert body["has_new_line"] is True
    assert body["stop_type"] == "limit"
    assert 0 < body["tokens_predicted"] < 900
    assert body["truncated"] is False


def test_slots_show_who_works(server: Served) -> None:
    parts = server.stream(PATH, {"prompt": PROMPT, "n_predict": -1, "stream": True, "id_slot": 2, **FREE})
    assert next(parts)["id_slot"] == 2
    (busy,) = [slot for slot in server.get("/slots").json() if slot["is_processing"]]
    assert busy["id"] == 2
    assert busy["next_token"][0]["has_next_token"] is True
    assert "prompt" not in busy, "no client reads another's text"
    for _ in parts:
        pass
    idle = server.get("/slots/2").json()
    assert idle["is_processing"] is False
    assert idle["next_token"][0]["n_decoded"] > 50
    assert server.get("/slots").json()[0]["n_ctx"] == 1024


def test_every_request_beyond_the_slots_waits_for_one() -> None:
    with served("--backend", "cpu", "--parallel", "2") as server:
        assert server.get("/slots").json() == [
            {"id": i, "n_ctx": 1024, "speculative": False, "is_processing": False} for i in range(2)
        ]
        found: list[Any] = []

        def one(seed: int) -> None:
            found.append(ask(server, n_predict=200, seed=seed, **FREE))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, sum(slot["is_processing"] for slot in server.get("/slots").json()))
        for thread in threads:
            thread.join()
        assert most == 2
        assert {body["id_slot"] for body in found} <= {-1, 0, 1}
        assert len({body["content"] for body in found}) == 6


def test_a_client_that_leaves_frees_its_slot() -> None:
    body = {"prompt": PROMPT, "n_predict": 1_000_000, "stream": True, **FREE}
    with served("--backend", "cpu", "--context-shift") as server:
        with server.http.stream("POST", PATH, json=body) as reply:
            next(reply.iter_lines())
        until(lambda: not any(slot["is_processing"] for slot in server.get("/slots").json()))


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"prompt": None}, 400, "prompt"),
        ({"prompt": 5}, 400, "prompt"),
        ({"prompt": [[1], 2]}, 400, "mixes"),
        ({"prompt": [1, [2]]}, 400, "mixes"),
        ({"prompt": [99999]}, 400, "vocabulary"),
        ({"prompt": ""}, 400, "empty"),
        ({"prompt": ["a"] * 129}, 400, "at most 128"),
        ({"prompt": ["a"] * 100}, 400, "at once"),
        ({"prompt": {"text": "a"}}, 400, "prompt"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, 501, "image"),
        ({"n_predict": -2}, 400, "n_predict"),
        ({"n_discard": -1}, 400, "n_discard"),
        ({"samplers": "zzz"}, 400, "letter"),
        ({"samplers": ["infill"]}, 400, "order"),
        ({"logit_bias": [[1]]}, 400, "logit_bias"),
        ({"logit_bias": [[1, "x"]]}, 400, "logit_bias"),
        ({"logit_bias": 3}, 400, "logit_bias"),
        ({"grammar": "root ::= ("}, 400, "grammar"),
        ({"json_schema": {"type": "nothing"}}, 400, "type"),
        ({"id_slot": 4}, 400, "id_slot"),
        ({"n_probs": 21}, 400, "n_probs"),
        ({"stop": [1]}, 400, "stop"),
        ({"lora": [{"id": 0, "scale": 1}]}, 400, "adapter"),
        ({"t_max_prompt_ms": 5}, 400, "t_max_prompt_ms"),
    ],
)
def test_a_bad_field_is_refused_in_llama_cpps_shape(
    server: Served, change: dict[str, Any], status: int, words: str
) -> None:
    reply = server.post(PATH, {"prompt": "a", "n_predict": 2, **change})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["code"] == status
    assert words in error["message"]
