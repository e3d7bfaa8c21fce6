"""Pre-tokenizers that cut text into words before byte-pair merges, one table row each.

Names and flags of the rows come from llama.cpp (src/llama-vocab.cpp). The regexes are those that the models
publish (published.py), or llama.cpp's where no publication is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers import published
from camelid.text.tokenizers.published import GPT2, LLAMA3, O200K, QWEN2
from camelid.text.tokenizers.splitting import cutter


@dataclass(frozen=True, slots=True)
class Splitter:
    """Regexes applied in turn, each to the pieces that the previous left, and flags of the model family."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token is encoded without merges
    add_bos: bool = False  # the family's default if the file has no flag
    spells_bytes: bool = True  # tokens are in the byte alphabet; else in characters with ▁ for a space

    def split(self, text: str) -> list[str]:
        """Cuts `text` into words; joined, they are `text`."""
        words = [text] if text else []
        for pattern in self.patterns:
            cut = cutter(pattern)
            words = [part for word in words for part in (cut(word) if len(word) > 1 else (word,))]
        return words


def rows(names: str, *patterns: str, **flags: bool) -> dict[str, Splitter]:
    return dict.fromkeys(names.split(), Splitter(patterns, **flags))


# tokenizer.ggml.pre -> its row. Qwen's tokenizer.json also normalizes to NFC, which GGUF cannot express;
# this table omits it, as llama.cpp does.
SPLITTERS: dict[str, Splitter] = {
    **rows(
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat "
        "a.x-4.0 mellum modern-bert mpt olmo jais exaone4 trillion granite-docling",
        GPT2,
    ),
    **rows("starcoder refact codeshell exaone minerva-7b mellum2 command-r smollm", r"\p{N}", GPT2),
    **rows("falcon", r"[\p{P}\$\+<=>\^~\|`]+", GPT2, published.ASCII_TRIPLE),
    **rows("default", r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", published.ASCII_TRIPLE),
    **rows("chameleon", *published.CHAMELEON, GPT2, add_bos=True),
    **rows(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        LLAMA3,
        ignore_merges=True,
        add_bos=True,
    ),
    **rows("dbrx smaug-bpe chatglm-bpe", LLAMA3),
    **rows("glm4 glm5", LLAMA3, ignore_merges=True),
    **rows("jais-2", published.JAIS2),
    **rows("minicpm5", r"\p{N}{1,3}", published.MINICPM5, ignore_merges=True),
    **rows("qwen2 stablelm2 megrez deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open", QWEN2),
    **rows("qwen35", published.QWEN35),
    **rows("ufakzeka", published.UFAKZEKA),
    **rows("seed-coder", published.SEED_CODER),
    **rows("bailingmoe bailingmoe2 llada-moe", published.BAILINGMOE),
    **rows("exaone-moe", published.EXAONE_MOE),
    **rows("laguna", published.LAGUNA_LINES, QWEN2),
    **rows("gpt-4o llama4 kanana2 talkie minimax-m2", O200K),
    **rows("granite-embed-multi-97m", O200K, ignore_merges=True),
    **rows("tiny_aya cohere2moe", published.TINY_AYA_DIGITS, O200K),
    **rows("tekken", published.TEKKEN, ignore_merges=True, add_bos=True),
    **rows("youtu", published.YOUTU_SCRIPTS, published.YOUTU, ignore_merges=True),
    **rows("kimi-k2", published.KIMI_K2),
    **rows("deepseek-coder", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", published.DEEPSEEK_HAN, r"\p{N}"),
    **rows(
        "deepseek-llm",
        r"[\r\n]",
        r"\s?" + published.DEEPSEEK_LETTERS,
        r"\s?" + published.DEEPSEEK_PUNCTUATION,
        r"\s+$",
        published.DEEPSEEK_HAN,
        r"\p{N}+",
    ),
    **rows(
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        r"\p{N}{1,3}",
        published.DEEPSEEK_CJK,
        published.DEEPSEEK_V3,
    ),
    **rows("spark2_5", r"\p{N}{1,3}", published.DEEPSEEK_CJK, published.SPARK, r"\p{N}"),
    **rows("afmoe", published.AFMOE_DIGITS, published.AFMOE_SCRIPTS, published.DEEPSEEK_V3),
    **rows("superbpe", r"\p{N}+", published.SUPERBPE_DIGITS),
    **rows("bloom gpt3-finnish poro-chat", published.BLOOM),
    **rows("viking", published.BLOOM, r"\p{N}"),
    **rows("gemma4 granite-embed-multi-311m", published.LINES, spells_bytes=False, add_bos=True),
    **rows("sarvam-moe", published.LINES, spells_bytes=False),
}


def splitter(name: str) -> Splitter:
    """The row of a tokenizer.ggml.pre name. Raises UnsupportedModelError."""
    if name not in SPLITTERS:
        families = {row.patterns: first for first, row in reversed(SPLITTERS.items())}
        raise UnsupportedModelError(
            f"pre-tokenizer {name!r:.80} is not known; known: {', '.join(sorted(families.values()))} "
            f"and equivalent names, {len(SPLITTERS)} in all; "
            "add its regexes as a row of SPLITTERS in text/tokenizers/pretokenize.py",
            kind="pre-tokenizer",
            name=name,
            known=sorted(SPLITTERS),
        )
    return SPLITTERS[name]
