"""A causal model that ranks by its answer: the answers' rows of the vocabulary become its ranking head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from camelid.errors import ModelFormatError, shown
from camelid.formats.hf_config import HfDirectory
from camelid.formats.settings import Config
from camelid.plan.weights import Weight, take_rows

HEAD = "cls.output.weight"


def answer_ids(directory: HfDirectory) -> tuple[int, ...]:
    """The ids of the answers. Raises ModelFormatError for an answer that the vocabulary does not have."""
    model = Config(directory.tokenizer, str(directory.path / "tokenizer.json")).section("model")
    vocab = model.section("vocab") if any(isinstance(a, str) for a in directory.embedding.answers) else model
    return tuple(vocab.count(a, least=0) if isinstance(a, str) else a for a in directory.embedding.answers)


def with_answers(tensors: Mapping[str, Weight], ids: Sequence[int]) -> dict[str, Weight]:
    """The tensors with the head [answers, hidden] in place of that of the vocabulary; unchanged without ids.

    Raises ModelFormatError for an id beyond the vocabulary.
    """
    whole = tensors.get("output.weight") or tensors.get("token_embd.weight")
    if not ids or whole is None:
        return dict(tensors)
    if max(ids) >= whole.shape[0]:
        raise ModelFormatError(
            f"LogitScore names the token {max(ids)}, expected ids below {whole.shape[0]}",
            key="true_token_id",
            got=shown(max(ids)),
        )
    kept = {name: weight for name, weight in tensors.items() if name != "output.weight"}
    return {**kept, HEAD: take_rows(whole, HEAD, [(row, 1) for row in ids])}
