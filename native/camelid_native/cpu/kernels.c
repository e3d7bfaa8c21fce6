/* One variant of all kernels: this file is compiled once for each, with CAM_VARIANT its name. */
#include "variant.h"
#include "words.h"

#include "codecs.c"
#include "elementwise.c"
#include "norms.c"
#include "recurrent.c"
#include "rope.c"
#include "router.c"
#include "streams.c"
#include "matrix.c"
#include "experts.c"

/* Every op there is a kernel for, with the scratch that it wants. */
#define CAM_OPS(_)                                                                     \
    _(add, none) _(affine, none) _(glu, none) _(mul, none) _(scale, none)              \
    _(softcap, none) _(unary, none)                                                    \
    _(add_norm, none) _(cutoff, none) _(length, none) _(norm, none)                    \
    _(combine, none) _(concat, none) _(mix, none)                                      \
    _(conv1d, conv1d) _(scan_delta, none) _(scan_mamba2, none)                         \
    _(rope, rope) _(router, router)                                                    \
    _(linear, linear) _(linear_glu, linear) _(linear_heads, linear)                    \
    _(linear_experts, linear_experts)

static uint64_t scratch_none(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)op, (void)program, (void)n_threads;
    return 0;
}

#define CAM_ROW(name, scratch) {#name, op_##name, scratch_##scratch},
static const struct {
    const char *name;
    cam_kernel *run;
    cam_scratch *scratch;
} kernels[] = {CAM_OPS(CAM_ROW)};
#undef CAM_ROW

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
    .panel_bytes = variant_panel_bytes,
    .pack = variant_pack,
    .unpack_row = variant_unpack_row,
};
