"""Every error class is raised by the core, once here at run time, with an actionable message."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.engine_fakes import HashBackend, make_engine, request

from camelid import errors
from camelid.backends.registry import open_backend
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.host_browser import fail
from camelid.backends.webgpu.limits import check_buffers
from camelid.errors import CamelidError
from camelid.formats.gguf import Gguf, GgufTensor, read_gguf
from camelid.formats.hub.fetch import fetch
from camelid.formats.quants import quant, row_bytes
from camelid.learning.store.store import Store
from camelid.model.read import read_model
from camelid.plan.ops import check_op
from camelid.plan.plan import Op
from camelid.sampling.params import SamplingParams
from camelid.text.templates.template import compile_template
from camelid.witness.verify import verify

CORE = Path(__file__).parents[1] / "core" / "camelid"
CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, CamelidError)
}


def send_header(data: bytes) -> None:
    """Feeds the GGUF parser the first chunk of a longer file."""
    parser = read_gguf(1 << 20)
    next(parser)
    parser.send(data.ljust(64 << 10, b"\0"))


def header(arch: str, *tensors: GgufTensor) -> Gguf:
    """A parsed file with little metadata besides its architecture."""
    key = "general.architecture"
    return Gguf(3, 32, {key: arch}, {key: "string"}, {tensor.name: tensor for tensor in tensors}, 0, 0)


def overflow() -> None:
    engine = asyncio.run(make_engine(HashBackend(), context=8))
    engine.submit(request([1] * 8, 1))


# Error class raised in core -> the shortest call that raises it. A new class in core needs a row.
RAISERS: dict[str, Callable[[], object]] = {
    "BackendError": lambda: open_backend("gpu"),
    "ContextOverflowError": overflow,
    "DeviceLostError": lambda: fail("DeviceLostError", "the tab was suspended"),
    "FetchError": lambda: fetch("owner/repo", offline=True, cache_dir="there-is-no-such-folder"),
    "ModelFormatError": lambda: row_bytes("q8_0", 33),
    "OutOfMemoryError": lambda: check_buffers(
        {"buffers": [{"name": "kv", "bytes": 99}]},
        {"maxBufferSize": 64, "maxStorageBufferBindingSize": 64},
    ),
    "PlanError": lambda: check_op(Op("matmul", (), ())),
    "TensorShapeError": lambda: next(
        read_model(header("llama", GgufTensor("rope_freqs.weight", "q8_0", (32,), 0, 34)))
    ),
    "RequestError": lambda: SamplingParams.from_options({"top_k": "1"}),
    "TemplateError": lambda: compile_template("{{ a..b }}"),
    "UnsupportedModelError": lambda: quant("q3_9"),
    "LearningError": lambda: Store.open("local", "0" * 32, CORE / "errors.py"),
    "WitnessError": lambda: verify(CORE),
}
# Further reviewed messages: (class, words that it must contain, raiser).
FURTHER: list[tuple[str, tuple[str, ...], Callable[[], object]]] = [
    ("BackendError", ("'no_such'", "known"), lambda: shaders.text("no_such")),
    ("ModelFormatError", ("web page",), lambda: send_header(b"<!doctype html>")),
    ("UnsupportedModelError", ("'bert2'", "supported: bert"), lambda: next(read_model(header("bert2")))),
    ("UnsupportedModelError", ("version 1",), lambda: send_header(b"GGUF\1\0\0\0")),
]


def core_calls() -> Iterator[tuple[str, ast.Call, str]]:
    """(error class, call, place) of each error made in core."""
    for path in sorted(CORE.rglob("*.py")):
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                yield node.func.id, node, f"core/camelid/{path.relative_to(CORE)}:{node.lineno}"


def test_every_raised_class_has_a_raiser() -> None:
    raised = {name for name, _, _ in core_calls()}
    assert raised - RAISERS.keys() == set(), "core raises these classes: add rows to RAISERS"
    assert RAISERS.keys() - raised == set(), "core no longer raises these classes: remove their rows"


@pytest.mark.parametrize("name", sorted(RAISERS))
def test_error_is_raised_with_its_class_facts_and_advice(name: str) -> None:
    with pytest.raises(CamelidError) as caught:
        RAISERS[name]()
    check_error(caught.value, name)


@pytest.mark.parametrize(("name", "words", "raiser"), FURTHER)
def test_message_states_the_found_value(
    name: str, words: tuple[str, ...], raiser: Callable[[], object]
) -> None:
    with pytest.raises(CamelidError) as caught:
        raiser()
    check_error(caught.value, name)
    assert all(word in str(caught.value) for word in words)


def check_error(error: CamelidError, name: str) -> None:
    """Checks the exact class, a sentence without unfilled braces, and an attribute for every fact."""
    assert type(error).__name__ == name
    assert len(str(error).split()) >= 4
    assert "{" not in str(error), "a placeholder was left unfilled"
    assert error.facts, "the error has no attributes for a server to map"
    assert all(getattr(error, key) == value for key, value in error.facts.items())


def test_messages_are_sentences_that_state_facts() -> None:
    """A literal message holds a value or at least four words, and never ends in a full stop or newline."""
    bad = [f"{place}: {text!r}" for _, call, place in core_calls() if (text := message(call)) and vague(text)]
    assert bad == []


def message(call: ast.Call) -> str | None:
    """The message in the source, with `{}` for each value."""
    if not call.args:
        return "no message"
    node = call.args[0]
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def vague(text: str) -> bool:
    return (
        ("{" not in text and len(text.split()) < 4) or text.endswith((".", "\n", " ")) or text[:1].isspace()
    )


def test_docstring_tree_equals_the_class_tree() -> None:
    drawn = {word for word in (errors.__doc__ or "").replace("─", " ").split() if word in CLASSES}
    assert drawn == CLASSES


def test_only_facts_are_attributes() -> None:
    error = CamelidError("a message", name="x")
    assert error.name == "x"
    with pytest.raises(AttributeError):
        _ = error.absent
