/* Codecs: what the bits of a stored row mean. A row of `codecs` for each type that has one.
 *
 * Every product and sum is float32, in the order in which camelid/backends/codecs has it, so that both give
 * the same bits on every machine. Rows hold whole blocks and lie at any byte. */
#pragma once
#include "simd.h"

/* n values, whole blocks; `blocks` and `values` never overlap. */
typedef void cam_decode_row(const uint8_t *blocks, float *values, uint32_t n);
typedef void cam_encode_row(const float *values, uint8_t *blocks, uint32_t n);

typedef struct {
    uint32_t block, block_bytes;   /* values in a block, its bytes */
    cam_decode_row *decode;
    cam_encode_row *encode;        /* NULL: there is none */
} cam_codec;

/* By GGUF's id of the type; a hole has block 0. */
enum { N_CODECS = 43 };
static const cam_codec codecs[N_CODECS];

/* Bytes of a row of n values; 0 of a type without codec. */
INLINE uint64_t codec_row_bytes(uint32_t type, uint32_t n) {
    const cam_codec *codec = &codecs[type];
    return codec->block ? (uint64_t)(n / codec->block) * codec->block_bytes : 0;
}
