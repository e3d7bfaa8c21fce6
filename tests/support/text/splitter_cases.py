"""The published regexes in `tokenizers`: the oracles of the splitters.

One case per distinct set of regexes, under one of its names. UNVERIFIED lists the rows without a published
original, with the reason.
"""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
ONE_TAIL = r"|\s*[\r\n]|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
CASCADE = "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"\s{1,2}(?!\S)|\s{1}"
CAMEL = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+SUFFIX"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*SUFFIX"
)
TEKKEN = CAMEL.replace("SUFFIX", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
O200K = CAMEL.replace("SUFFIX", CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
KIMI = (
    r"[\p{Han}]+|"
    + CAMEL.replace("SUFFIX", CONTRACTIONS + "?").replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    + TAIL
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*" + TAIL
)
DEEPSEEK_LETTERS = (
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
    "]+"
)
AFMOE_SCRIPTS = (
    r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+"
    r"|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+"
    r"|[\uAC00-\uD7AF\u1100-\u11FF]+)"
)


def split(*patterns: str, first: str = "isolated") -> pre_tokenizers.PreTokenizer:
    """The regexes in turn; `first` is the behavior of the first regex."""
    behaviors = [first, *["isolated"] * (len(patterns) - 1)]
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), b) for p, b in zip(patterns, behaviors, strict=True)]
    )


ORACLES = {
    "gpt-2": split(GPT2),
    "qwen2": split(QWEN2),
    "llama-bpe": split(LLAMA3),
    # Published as Digits(individual_digits=True), which uses Rust's newer Unicode tables.
    "smollm": split(r"\p{N}", GPT2),
    "falcon": split(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"),
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "chameleon": split(
        "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
        r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2,
    ),
    "jais-2": split(LLAMA3.removesuffix(r"\s+(?!\S)|\s+") + CASCADE),
    "minicpm5": split(r"\p{N}{1,3}", QWEN2.replace(r"\p{N}|", r"\p{N}+|")),
    "qwen35": split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
    ),
    "ufakzeka": split(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL),
    "seed-coder": split(
        CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+" + TAIL
    ),
    "bailingmoe": split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*" + ONE_TAIL
    ),
    "exaone-moe": split(
        CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
        + ONE_TAIL
    ),
    "laguna": split(r"(?:\r?\n)+(?!\r?\n)", QWEN2, first="merged_with_next"),
    "gpt-4o": split(O200K),
    "tiny_aya": split(r"\d{1,3}(?=(?:\d{3})*\b)", O200K),
    "tekken": split(TEKKEN),
    "youtu": split(
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", O200K.replace("{1,3}", "")
    ),
    "kimi-k2": split(KIMI),
    "deepseek-coder": split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
    "deepseek-llm": split(
        "[\r\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+"
    ),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
    "spark2_5": split(
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK.replace(r"[\r\n]*|\s*[\r\n]+", r"|[\r\n]"), r"\p{N}"
    ),
    "afmoe": split(
        r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}",
        r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)", r"\A\p{Nd}{3}|\G\p{Nd}{3}", AFMOE_SCRIPTS, DEEPSEEK,
    ),
    "superbpe": split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "bloom": split(" ?[^(\\s|[.,!?…。，、।۔،])]+"),
    "viking": split(" ?[^(\\s|[.,!?…。，、।۔،])]+", r"\p{N}"),
    "gemma4": split(r"[^\n]+|[\n]+"),
}  # fmt: skip

# Rows that agree with `tokenizers` only under llama.cpp's regexes, by reason.
UNVERIFIED = {
    "default": "no model publishes it: llama.cpp's way for files that name none",
    "falcon": "published as Punctuation and ByteLevel; llama.cpp's regexes, whose vectors hold",
    "chameleon": "published as Digits and Punctuation, which follow other tables; llama.cpp's regexes",
    "smollm": "published as Digits, which follows newer tables; llama.cpp's regexes",
    "deepseek-llm": "published with Digits at the end; llama.cpp's regexes",
    "viking": "the order of the two steps is llama.cpp's",
    "spark2_5": "no publication at hand; llama.cpp's regexes",
    "superbpe": "no publication at hand; llama.cpp's regexes",
    "ufakzeka": "no publication at hand; llama.cpp's regexes",
    "youtu": "no publication at hand; llama.cpp's regexes with ſ folded as the others do",
    "gemma4": "published without a cut; lines are llama.cpp's way to shorten the work",
}
