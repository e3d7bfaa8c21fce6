/* Functions exported to the host. Variants are numbered 0 to cam_n_variants() - 1, the slowest first. */
#include "abi.h"
#include "cpuid.h"
#include "pool.h"
#include "words.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Variants in this library; build/library.py defines CAM_HAS_* for each. */
#define CAM_VARIANTS(_)                                                                             \
    CAM_IF_PORTABLE(_) CAM_IF_AVX2(_) CAM_IF_AVXVNNI(_) CAM_IF_AVX512VNNI(_) CAM_IF_AVX512BF16(_)   \
    CAM_IF_NEON_DOT(_) CAM_IF_NEON_I8MM(_) CAM_IF_WASM(_) CAM_IF_WASM_RELAXED(_)
#include "built.h"

#define CAM_DECLARE(name) extern const cam_variant cam_variant_##name;
CAM_VARIANTS(CAM_DECLARE)
#define CAM_LIST(name) &cam_variant_##name,
static const cam_variant *const variants[] = {CAM_VARIANTS(CAM_LIST)};

static const char *const words[] = {
#define CAM_NAME(name) #name,
    CAM_WORDS(CAM_NAME)
};

EXPORT uint32_t cam_abi(void) { return CAM_ABI; }
EXPORT uint32_t cam_n_variants(void) { return sizeof variants / sizeof *variants; }
EXPORT const char *cam_variant_name(uint32_t variant) { return variants[variant]->name; }
EXPORT uint32_t cam_runs_here(uint32_t variant) {
    return (uint32_t)cam_machine_runs(variants[variant]->name);
}

/* Size of each record, which the host compares with its own; 0 past the last record. */
EXPORT uint32_t cam_record_bytes(uint32_t record) {
    const uint32_t sizes[] = {sizeof(cam_view), sizeof(cam_weight), sizeof(cam_state), sizeof(cam_op),
                              sizeof(cam_program)};
    return record < sizeof sizes / sizeof *sizes ? sizes[record] : 0;
}

/* Name of an attribute word or an op by number; NULL past the last. */
EXPORT const char *cam_word(uint32_t number) { return number < N_WORDS ? words[number] : NULL; }
EXPORT const char *cam_op_name(uint32_t kind) { return variants[0]->op_name(kind); }

EXPORT uint64_t cam_scratch_bytes(uint32_t variant, const cam_program *program, uint32_t n_threads) {
    return variants[variant]->scratch_bytes(program, n_threads);
}
EXPORT uint32_t cam_submit(cam_pool *pool, uint32_t variant, const cam_program *program, const uint32_t *step,
                           uint8_t *result) {
    const cam_run run = {.program = program, .step = step, .result = result};
    return (uint32_t)cam_pool_submit(pool, variants[variant], &run);
}
EXPORT void cam_wait(cam_pool *pool, uint32_t most) { cam_pool_wait(pool, most); }
EXPORT cam_pool *cam_start(uint32_t n_threads, const uint32_t *cpus, uint32_t with_host) {
    return cam_pool_new(n_threads, cpus, (int)with_host);
}
EXPORT void cam_stop(cam_pool *pool) { cam_pool_free(pool); }

#if !defined(__wasm__)
EXPORT uint32_t cam_quantize(uint32_t variant, uint32_t type, const float *values, const float *importance,
                             uint32_t cols, uint64_t n, uint8_t *blocks) {
    return variants[variant]->quantize(type, values, importance, cols, n, blocks);
}
#endif

/* For tests only: cam_decode, cam_unpack_row, and the parameter `order` of cam_pack. */
EXPORT uint32_t cam_decode(uint32_t variant, uint32_t type, const uint8_t *blocks, float *values,
                           uint64_t n) {
    return variants[variant]->decode(type, blocks, values, n);
}
EXPORT uint32_t cam_encode(uint32_t variant, uint32_t type, const float *values, uint8_t *blocks,
                           uint64_t n) {
    return variants[variant]->encode(type, values, blocks, n);
}
EXPORT uint64_t cam_panel_bytes(uint32_t variant, uint32_t type, uint32_t rows, uint32_t cols) {
    return variants[variant]->panel_bytes(type, rows, cols);
}
EXPORT void cam_pack(uint32_t variant, uint32_t type, const uint8_t *stored, const uint32_t *order,
                     uint32_t rows, uint32_t cols, uint32_t first, uint32_t end, uint32_t every,
                     uint8_t *panels) {
    variants[variant]->pack(type, stored, order, rows, cols, first, end, every, panels);
}
EXPORT void cam_unpack_row(uint32_t variant, uint32_t type, const uint8_t *panels, uint32_t rows,
                           uint32_t cols, uint32_t row, float *values) {
    variants[variant]->unpack_row(type, panels, rows, cols, row, values);
}
EXPORT uint32_t cam_lanes(uint32_t variant) { return variants[variant]->lanes; }
EXPORT uint32_t cam_multiply(uint32_t variant, uint32_t n) { return variants[variant]->multiply(n); }
