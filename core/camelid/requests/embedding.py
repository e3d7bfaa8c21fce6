"""Texts to embeddings, and pairs of texts to scores: requests of whole texts, and what their floats mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, cast

from camelid.engine.request import Request, check_integer
from camelid.errors import ContextOverflowError, RequestError, shown
from camelid.model.adapter import Selection
from camelid.model.encoder_specs import DEFAULT_PROMPT, PROMPT
from camelid.requests.build import ModelHeader, ranks
from camelid.sampling.params import SamplingParams
from camelid.text.templates.named import DOCUMENT, QUERY, RERANK
from camelid.text.tokenizers.tokenizer import Tokenizer

Text: TypeAlias = str | Sequence[int]
WAY_OUT = "shorten it, or set truncate to cut it"
NO_TEXTS = (bytes, bytearray, Mapping)  # iterable, but no lists of texts or ids


class RerankOptions(TypedDict, total=False):
    """Options of a ranking.

    `normalize` False returns the model's own logits instead of their probabilities. `truncate` cuts texts
    that are longer than the context, a pair's document first; without it they are an error. `adapter` names
    loaded adapters as in a request.
    """

    normalize: bool
    truncate: bool
    adapter: Selection | None


class EmbedOptions(TypedDict, total=False):
    """Options of embeddings.

    `normalize` (by default True) scales each to length 1. `dimensions` keeps the first floats, for models
    trained so. `prompt` is put before every text: a name that the model's file has a text for, or the text
    itself, ending in a colon or a space (None: the file's default). `truncate` cuts texts that are longer
    than the context at their end; without it they are an error. `adapter` names loaded adapters as in a
    request.
    """

    normalize: bool
    dimensions: int | None
    prompt: str | None
    truncate: bool
    adapter: Selection | None


@dataclass(frozen=True, slots=True)
class Encoder:
    """Requests and results of one model that encodes texts, loaded at a context of so many tokens."""

    file: ModelHeader
    context: int

    @property
    def prompts(self) -> Mapping[str, str]:
        """Texts by name that are put before a text, as the model's card prescribes."""
        facts = self.file.gguf.metadata.items()
        return {name.removeprefix(PROMPT): str(text) for name, text in facts if name.startswith(PROMPT)}

    def embeddings(
        self, texts: Iterable[Text], tokenizer: Tokenizer | None, *, prompt: str | None, truncate: bool
    ) -> list[Request]:
        """One request for each text. Raises RequestError, ContextOverflowError."""
        self._check_pooled()
        before = self.prompt_text(prompt)
        return [self._text(i, text, before, tokenizer, truncate) for i, text in enumerate(texts)]

    def token_rows(self, text: Text, tokenizer: Tokenizer | None) -> Request:
        """A request for the hidden state of every token, of a model without a pooling."""
        request = self._text(0, text, "", tokenizer, truncate=False)
        return self._request(request.prompt_ids, n_encoded=request.n_prompt)

    def pairs(
        self, query: str, documents: Iterable[str], tokenizer: Tokenizer, *, truncate: bool
    ) -> list[Request]:
        """One request for each pair of the query and a document. Raises RequestError."""
        if not ranks(self.file.spec):
            raise _no("rankings", "has no ranking head", "load a reranker")
        found = [(i, _words("documents", i, document)) for i, document in enumerate(documents)]
        template = self.file.gguf.metadata.get(RERANK)
        if isinstance(template, str):
            return [self._rendered(template, query, i, text, tokenizer, truncate) for i, text in found]
        first = tokenizer.encode(_words("query", 0, query))
        return [self._pair(first, i, tokenizer.encode(text), tokenizer, truncate) for i, text in found]

    def prompt_text(self, prompt: str | None) -> str:
        """The text before each text: of a name of `prompts`, or the text itself, which ends in a colon or a
        space; None is the model's default. Raises RequestError for an unknown name.
        """
        named, default = self.prompts, self.file.gguf.metadata.get(DEFAULT_PROMPT)
        if prompt is None:
            return named.get(str(default), "")
        if not isinstance(cast("object", prompt), str):
            raise RequestError(f"prompt is {shown(prompt)}, expected text", field="prompt")
        if prompt in named or not prompt or prompt[-1].isspace() or prompt.endswith(":"):
            return named.get(prompt, prompt)
        known = ", ".join(named) or "no prompts"
        raise RequestError(
            f"prompt is {shown(prompt)}; the model has {known}; your own text ends in a colon or a space",
            field="prompt",
        )

    def _check_pooled(self) -> None:
        """Raises RequestError for a model that makes no embedding of a text."""
        spec = self.file.spec
        if not spec.embeds or spec.encoder is None:
            raise _no(
                "embeddings", "generates text", "load a model for embeddings, or this one with a pooling"
            )
        if ranks(spec):
            raise _no("embeddings", "scores pairs of texts", "call rerank, or load a model for embeddings")
        if not spec.encoder.pooling:
            raise _no("embeddings", "states no pooling, only a row for each token", "load it with a pooling")

    def _text(self, i: int, text: Text, before: str, tokenizer: Tokenizer | None, truncate: bool) -> Request:
        if not isinstance(text, str):
            ids = tuple(_ids(i, text))
            return self._request(self._cut(i, ids, (), truncate))
        if tokenizer is None:
            raise RequestError("this model's file has no tokenizer; give texts as token ids", field="input")
        frame = tokenizer.frame
        ids = (*frame.before, *tokenizer.encode(before + _words("input", i, text)))
        return self._request(self._cut(i, ids, frame.after, truncate))

    def _cut(self, i: int, ids: tuple[int, ...], after: tuple[int, ...], truncate: bool) -> tuple[int, ...]:
        """The ids with those after them, the first of them as far as the context reaches."""
        n = len(ids) + len(after)
        if not n:
            raise RequestError(f"input[{i}] is empty; give at least one token", field="input")
        if n > self.context and not truncate:
            raise _too_long(f"input[{i}]", n, self.context)
        return (*ids[: max(self.context - len(after), 0)], *after)

    def _pair(
        self, first: list[int], i: int, second: list[int], tokenizer: Tokenizer, truncate: bool
    ) -> Request:
        """[CLS] query [SEP] document [SEP]; the document is cut. Types tell the two texts apart."""
        frame = tokenizer.frame
        head = (*frame.before, *first, *self._between(frame.after))
        ids = self._fitting(i, head, second, frame.after, truncate)
        types = [0] * len(head) + [int(self.file.spec.n_token_types > 1)] * (len(ids) - len(head))
        return self._request(ids, types)

    def _between(self, after: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens between two texts: those after a text; XLM-RoBERTa's have one more separator."""
        facts = self.file.gguf.metadata
        is_doubled = facts.get("tokenizer.ggml.model") == "t5"
        return after * 2 if facts.get("tokenizer.ggml.add_sep_token", is_doubled) else after

    def _rendered(
        self, template: str, query: str, i: int, document: str, tokenizer: Tokenizer, truncate: bool
    ) -> Request:
        """The template's text, in which the query and the document stay text."""
        head, _, tail = template.partition(DOCUMENT)
        before, _, middle = head.partition(QUERY)
        first = ((before, True), (_words("query", 0, query), False), (middle, True))
        both = (*first, (document, False))  # words cross the borders
        ids = tokenizer.encode_spans((*both, (tail, True)))
        if len(ids) > self.context:
            n_head = len(tokenizer.encode_spans(first))
            after = tuple(tokenizer.encode_spans(((tail, True),), opens=False))
            cut = tokenizer.encode_spans(both)
            ids = self._fitting(i, tuple(cut[:n_head]), cut[n_head:], after, truncate)
        return self._request(ids)

    def _fitting(
        self, i: int, head: tuple[int, ...], second: list[int], after: tuple[int, ...], truncate: bool
    ) -> tuple[int, ...]:
        """Both texts, the second as far as the context reaches."""
        room = self.context - len(head) - len(after)
        if room < 1 or (len(second) > room and not truncate):
            what = "query" if room < 1 else f"documents[{i}] with the query"
            raise _too_long(what, len(head) + len(second) + len(after), self.context)
        return (*head, *second[:room], *after)

    def _request(self, ids: Sequence[int], types: Sequence[int] = (), n_encoded: int = 1) -> Request:
        has_types = self.file.spec.n_token_types > 0
        types = tuple(types) or (0,) * len(ids)
        return Request(
            prompt_ids=tuple(ids),
            sampling=GREEDY,
            encodes=True,
            n_encoded=n_encoded,
            token_types=types if has_types else (),
            reuses=False,
        )


GREEDY = SamplingParams(temperature=0.0).seeded()


def embedding(row: Sequence[float], *, normalize: bool, dimensions: int | None) -> list[float]:
    """The first `dimensions` floats of a row (None: all), scaled to length 1 with `normalize`."""
    values = list(row if dimensions is None else row[:dimensions])
    if not normalize:
        return values
    length = math.hypot(*values)
    return [value / length for value in values] if length else values


def check_dimensions(dimensions: int | None, size: int) -> None:
    """Raises RequestError for a number of dimensions that the model's embeddings do not have."""
    if dimensions is not None:
        check_integer("dimensions", dimensions, 1, size)


def score(row: Sequence[float], *, normalize: bool) -> float:
    """The relevance of a pair: a logit, or with `normalize` its probability.

    A head of two labels answers yes or no; one of more has no single relevance. Raises RequestError.
    """
    if len(row) > 2:
        raise RequestError(f"the ranking head has {len(row)} labels, expected 1 or 2", field="model")
    logit = row[0] - row[1] if len(row) == 2 else row[0]
    if not normalize:
        return logit
    return 1.0 / (1.0 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1.0 + math.exp(logit))


def texts_of(texts: object, field: str) -> list[Any]:
    """A list of texts, from one or several. Raises RequestError for any other value."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, NO_TEXTS) or not isinstance(texts, Iterable):
        raise RequestError(f"{field} is {shown(cast('object', texts))}, expected texts", field=field)
    return list(cast("Iterable[Any]", texts))


def _words(name: str, i: int, text: object) -> str:
    if isinstance(text, str):
        return text
    raise RequestError(f"{name}[{i}] is {shown(text)}, expected text", field=name)


def _ids(i: int, text: object) -> list[int]:
    if isinstance(text, NO_TEXTS) or not isinstance(text, Iterable):
        raise RequestError(
            f"input[{i}] is {shown(cast('object', text))}, expected text or token ids", field="input"
        )
    ids = list(cast("Iterable[int]", text))
    if not all(type(item) is int for item in ids):
        raise RequestError(f"input[{i}] is {shown(ids)}, expected text or token ids", field="input")
    return ids


def _too_long(what: str, n: int, context: int) -> ContextOverflowError:
    return ContextOverflowError(
        f"{what} has {n} tokens, more than the {context} of the context; {WAY_OUT}",
        field="input", n_prompt=n, n_tokens=n, context_length=context,
    )  # fmt: skip


def _no(what: str, why: str, way_out: str) -> RequestError:
    return RequestError(f"this model makes no {what}: it {why}; {way_out}", field="model")
