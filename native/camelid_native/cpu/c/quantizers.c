/* Quantizers of all types with a search, and quantization of whole rows. */
#include "quantize_k.c"
#include "quantize_small.c"
#include "quantize_tables.c"
#include "quantize_grids.c"

static cam_quantizer *const quantizers[N_CODECS] = {
    [2] = quantize_q4_0,
    [3] = quantize_q4_1,
    [6] = quantize_q5_0,
    [7] = quantize_q5_1,
    [10] = quantize_q2_k,
    [11] = quantize_q3_k,
    [12] = quantize_q4_k,
    [13] = quantize_q5_k,
    [14] = quantize_q6_k,
    [16] = quantize_iq2_xxs,
    [17] = quantize_iq2_xs,
    [18] = quantize_iq3_xxs,
    [19] = quantize_iq1_s,
    [20] = quantize_iq4_nl,
    [21] = quantize_iq3_s,
    [22] = quantize_iq2_s,
    [23] = quantize_iq4_xs,
    [29] = quantize_iq1_m,
    [34] = quantize_tq1_0,
    [35] = quantize_tq2_0,
    [39] = quantize_mxfp4,
    [40] = quantize_nvfp4,
    [41] = quantize_q1_0,
    [42] = quantize_q2_0,
};

/* Quantizes n values (whole rows of `cols` values) by search; `importance` [cols] weights the squared errors
 * of a column, NULL: all alike. Returns 1 if the type has no quantizer. */
static uint32_t variant_quantize(uint32_t type, const float *values, const float *importance, uint32_t cols,
                                 uint64_t n, uint8_t *blocks) {
    if (type >= N_CODECS || !quantizers[type]) return 1;
    const uint32_t size = codecs[type].block, n_bytes = codecs[type].block_bytes;
    cam_batch batch;
    for (uint64_t block = 0, end = n / size; block < end; block += LANES) {
        const uint32_t filled = end - block < LANES ? (uint32_t)(end - block) : LANES;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const uint64_t at = (block + lane) * size;
            const int is_used = lane < filled;
            fill_lane(&batch, lane, is_used ? values + at : NULL,
                      importance && is_used ? importance + at % cols : NULL, size);
        }
        quantizers[type](&batch, blocks + block * n_bytes, filled);
    }
    return 0;
}
