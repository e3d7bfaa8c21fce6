"""The text around a query and a document, of a directory whose causal model ranks by its answer."""

from __future__ import annotations

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_config import HfDirectory
from camelid.text.templates.named import DOCUMENT, QUERY
from camelid.text.templates.template import compile_template

# Qwen3-Reranker's model card; llama.cpp stores the same text.
CARD_TEXT = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def rerank_template(directory: HfDirectory) -> str | None:
    """The text with {query} and {document} in their places; None for a directory of another kind.

    In a directory of sentence-transformers the chat template renders messages of the roles query and
    document, after the default prompt as the system message. Raises UnsupportedModelError for a template that
    omits one of them, TemplateError, and RequestError for a variable that the template does not read.
    """
    found = directory.embedding
    if not found.answers or isinstance(found.answers[0], str):
        return CARD_TEXT if found.answers else None
    prompt = found.prompts.get(found.default_prompt)
    roles = {"system": prompt, "query": QUERY, "document": DOCUMENT}
    messages = [{"role": role, "content": text} for role, text in roles.items() if text]
    options = {key: value for key, value in found.template_options.items() if key != "restore_suffix"}
    generates = bool(options.pop("add_generation_prompt", False))
    template = compile_template(directory.chat_template or "")
    spans = template.render(messages, add_generation_prompt=generates, **options)
    text = "".join(part for part, _ in spans)
    if text.count(QUERY) != 1 or text.count(DOCUMENT) != 1 or text.index(QUERY) > text.index(DOCUMENT):
        raise UnsupportedModelError(
            f"{directory.path}: the chat template does not show a message of the role query, then one of the "
            "role document, as a model with a LogitScore needs",
            kind="chat template",
            name="rerank",
        )
    return text
