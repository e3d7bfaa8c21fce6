/* Codecs of types that MLX alone writes: integers of 2, 3, 6 and 8 bits with a minimum, and mxfp8. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"

/* Codes of 8 bits are stored less 128. */
enum { ZERO_OF_8 = -128 };

/* value = d * q + m */
#define CAM_AFFINE(bits, zero)                                                                        \
    static void values_affine##bits(const block_affine##bits *block, float *values) {                 \
        int8_t codes[32];                                                                             \
        unpack_stream(codes, block->q, 32, bits);                                                     \
        affine_codes(values, half_value(block->d), codes, zero, half_value(block->m), 32);            \
    }                                                                                                 \
    DECODE_ROWS(affine##bits, 32)
CAM_AFFINE(2, 0)
CAM_AFFINE(3, 0)
CAM_AFFINE(6, 0)
CAM_AFFINE(8, ZERO_OF_8)
#undef CAM_AFFINE

/* E4M3: the exponent of float32 is 120 higher; subnormal codes stay subnormal, 0x7F and 0xFF are NaN. */
INLINE float float_of_e4m3(uint32_t code) {
    const float magnitude = float_of_bits((code & 127) << 20) * float_of_bits((120 + 127) << 23);
    return (code & 127) == 127 ? float_of_bits(0x7FC00000) : code & 128 ? -magnitude : magnitude;
}

/* value = 2^(e - 127) * E4M3 */
static void values_mxfp8(const block_mxfp8 *block, float *values) {
    const float half = half_of_e8m0(block->e);   /* twice of it may be infinite, and 0 times it NaN */
    for (uint32_t i = 0; i < 32; i++) values[i] = half * (2 * float_of_e4m3(block->q[i]));
}
DECODE_ROWS(mxfp8, 32)
