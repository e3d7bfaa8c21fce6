/* Numbers of the attribute words of ops: the attribute "silu" is stored as WORD_silu. */
#pragma once

#define CAM_WORDS(_)                                                                                  \
    _(none) _(silu) _(gelu) _(gelu_erf) _(relu) _(relu2) _(sigmoid) _(tanh) _(swiglu_oai)             \
    _(rms) _(layer) _(l2) _(norm) _(neox) _(causal) _(held) _(full) _(symmetric) _(chunked)           \
    _(softmax) _(topk_softmax) _(sparsemixer) _(mean) _(cls) _(last)

#define CAM_WORD(name) WORD_##name,
enum { CAM_WORDS(CAM_WORD) N_WORDS };
#undef CAM_WORD
