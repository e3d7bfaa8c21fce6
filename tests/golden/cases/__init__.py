"""The tiny models of archs/ by family, and wrong facts with which they must compute other logits.

A family's `CASES` are published configs with reduced sizes that use the features of the architecture:
sequences exceed the windows and the original contexts, experts outnumber the selected experts, multipliers
differ from 1. A row of `WRONG` changes keys of config.json; or, where no key controls the feature, it makes
tensors neutral: biases 0, norms 1. make_archs.py turns cases into files, and proves with transformers that
each wrong fact moves the logits.
"""

from __future__ import annotations

from tests.golden.case_row import CaseRow
from tests.golden.cases import (
    bert,
    bloom,
    cohere,
    deepseek,
    experts,
    falcon,
    gated,
    gemma,
    gemma3n,
    gemma4,
    gpt,
    gpt_oss,
    granite,
    kin,
    latents,
    liquid,
    llama,
    mamba,
    mixtures,
    nemotron,
    neox,
    olmo,
    opt,
    phi,
    qwen,
    relatives,
    routed,
    rwkv,
    sparse,
    t5,
    varied,
)
from tests.golden.mutation import Mutation

FAMILIES = (
    llama,
    qwen,
    gemma,
    phi,
    gpt,
    olmo,
    granite,
    liquid,
    experts,
    kin,
    mamba,
    gpt_oss,
    bert,
    mixtures,
    deepseek,
    routed,
    varied,
    cohere,
    falcon,
    neox,
    bloom,
    opt,
    nemotron,
    gemma3n,
    gemma4,
    relatives,
    gated,
    latents,
    t5,
    sparse,
    rwkv,
)
CASES: tuple[CaseRow, ...] = tuple(row for family in FAMILIES for row in family.CASES)
WRONG: tuple[Mutation, ...] = tuple(row for family in FAMILIES for row in family.WRONG)
