"""OpenAI's log-probabilities of text completions: tokens as strings, with their places in the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from camelid.requests.output_text import Event
from camelid.server.faces.common import Body, finite
from camelid.server.service.scoring import TokenScore
from camelid.text.tokenizers.pipeline import StreamDecoder
from camelid.text.tokenizers.tokenizer import Tokenizer

Top = Sequence[tuple[int, float]]


class LegacyLogprobs:
    """Makes the `logprobs` objects of one choice, in the order of its tokens.

    A control token has a name but no place in the text. `opens` is true where the answer opens a text.
    """

    def __init__(self, tokenizer: Tokenizer, *, opens: bool) -> None:
        self._tokenizer = tokenizer
        self._opens = opens
        self._decoder = StreamDecoder(tokenizer, opens=opens)
        self._offset = 0

    def of_prompt(self, prompt_ids: Sequence[int], scores: Sequence[TokenScore | None]) -> Body:
        """The object of a prompt. No token precedes the first, so it has no log-probability."""
        answer, self._decoder = self._decoder, StreamDecoder(self._tokenizer)
        known = [None, *scores[:-1]]
        try:
            return self._object(
                (token_id, score.logprob if score else None, score.top if score else ())
                for token_id, score in zip(prompt_ids, known, strict=True)
            )
        finally:
            self._decoder = answer

    def of_events(self, events: Iterable[Event]) -> Body:
        """The object of tokens of the answer."""
        return self._object(
            (event.token_id, event.logprob, event.top_logprobs)
            for event in events
            if event.token_id is not None
        )

    def _object(self, tokens: Iterable[tuple[int, float | None, Top]]) -> Body:
        body: Body = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token_id, logprob, top in tokens:
            body["tokens"].append(token_name(token_id, self._tokenizer))
            body["token_logprobs"].append(None if logprob is None else finite(logprob))
            body["top_logprobs"].append(None if logprob is None else self._top(token_id, logprob, top))
            body["text_offset"].append(self._offset)
            self._offset += len(self._decoder.push(token_id))
        return body

    def _top(self, token_id: int, logprob: float, top: Top) -> dict[str, float]:
        """Log-probabilities of the likeliest tokens and the token itself; of equal names the largest."""
        found: dict[str, float] = {}
        for i, value in sorted({*top, (token_id, logprob)}, key=lambda pair: -pair[1]):
            found.setdefault(token_name(i, self._tokenizer), finite(value))
        return found


def token_name(token_id: int, tokenizer: Tokenizer) -> str:
    """The token's text; its bytes, as OpenAI writes them, where they are no whole characters."""
    data = tokenizer.token_bytes(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
