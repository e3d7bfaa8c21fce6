/* All kernels of one variant. This file is compiled once per variant; CAM_VARIANT is the variant's name. */
#include "variant.h"
#include "words.h"

#include "codecs.c"
#if !defined(__wasm__)   /* a page quantizes no files */
#include "quantizers.c"
#endif
#include "elementwise.c"
#include "norms.c"
#include "recurrent.c"
#include "rope.c"
#include "router.c"
#include "streams.c"
#include "sampling.c"
#include "candidates.c"
#include "matrix.c"
#include "experts.c"
#include "low_rank.c"
#include "state.c"
#include "embed.c"
#include "attend.c"
#include "attend_rows.c"
#include "attend_split.c"
#include "attention.c"
#include "encoder.c"
#if !defined(__wasm__)   /* a page trains nothing */
#include "exact.c"
#include "trained_terms.c"
#include "attend_back.c"
#include "training.c"
#include "training_losses.c"
#endif

/* (op, scratch function) of each op with a kernel; those of training plans apart. */
#if defined(__wasm__)
#define CAM_TRAINING_OPS(_)
#else
#define CAM_TRAINING_OPS(_)                                                            \
    _(copy_rows, none) _(accumulate, none)                                             \
    _(linear_exact, linear_exact) _(linear_back, linear_back)                          \
    _(shrink, shrink) _(expand, none) _(outer, outer)                                   \
    _(attend_causal, attend_causal) _(attend_back, attend_back)                        \
    _(norm_back, none) _(rope_back, rope_back)                                         \
    _(glu_back, none) _(unary_back, none) _(softcap_back, none) _(clamp_back, none)    \
    _(mul_back, none) _(gather_back, none) _(loss, loss)                   \
    _(measure, measure) _(anchor, none) _(adamw, adamw)
#endif
#define CAM_OPS(_)                                                                     \
    _(tables, none) _(copy, none) _(kv_write, none)                                    \
    _(embed, none) _(embed_position, embed_position) _(gather_rows, none)              \
    _(attention, attention) _(attend_rows, attend_rows) _(pool, none) _(emit, none)    \
    _(add, none) _(affine, none) _(glu, none) _(mul, none) _(scale, none)              \
    _(softcap, none) _(clamp, none) _(unary, none) _(xielu, none) _(temperature, none) \
    _(add_norm, none) _(cutoff, none) _(length, none) _(norm, none)                    \
    _(combine, none) _(concat, none) _(mix, none)                                      \
    _(conv1d, conv1d) _(scan_delta, none) _(scan_mamba2, none)                         \
    _(token_shift, none) _(scan_rwkv6, none) _(scan_rwkv7, none) _(bonus_rwkv7, none)  \
    _(rope, rope) _(router, router)                                                    \
    _(linear, linear) _(linear_glu, linear) _(linear_heads, linear)                    \
    _(linear_experts, linear_experts)                                                  \
    _(low_rank, low_rank) _(low_rank_experts, low_rank_experts)                        \
    _(sample, sample) _(candidates, candidates)

static uint64_t scratch_none(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)op, (void)program, (void)n_threads;
    return 0;
}

#define CAM_ROW(name, scratch) {#name, op_##name, scratch_##scratch},
static const struct {
    const char *name;
    cam_kernel *run;
    cam_scratch *scratch;
} kernels[] = {CAM_OPS(CAM_ROW) CAM_TRAINING_OPS(CAM_ROW)};
#undef CAM_ROW

#include "peak.c"
#include "run.c"

#define CAM_JOIN(a, b) a##b
#define CAM_TABLE(name) CAM_JOIN(cam_variant_, name)
#define CAM_TEXT(name) CAM_QUOTE(name)
#define CAM_QUOTE(name) #name
extern const cam_variant CAM_TABLE(CAM_VARIANT);
const cam_variant CAM_TABLE(CAM_VARIANT) = {
    .name = CAM_TEXT(CAM_VARIANT),
    .lanes = LANES,
    .op_name = variant_op_name,
    .execute = variant_execute,
    .scratch_bytes = variant_scratch_bytes,
    .decode = variant_decode,
    .encode = variant_encode,
#if !defined(__wasm__)
    .quantize = variant_quantize,
#endif
    .panel_bytes = variant_panel_bytes,
    .pack = variant_pack,
    .unpack_row = variant_unpack_row,
    .multiply = variant_multiply,
};
