/* Codecs: conversion between stored rows and float32. `codecs` has an entry for each supported type.
 *
 * All arithmetic is float32 in the order of camelid/backends/common/codecs, so that both give the same bits
 * on every machine. Rows are whole blocks and may begin at any byte. */
#pragma once
#include "simd.h"

/* n values, whole blocks; `blocks` and `values` never overlap. */
typedef void cam_decode_row(const uint8_t *blocks, float *values, uint32_t n);
typedef void cam_encode_row(const float *values, uint8_t *blocks, uint32_t n);

typedef struct {
    uint32_t block, block_bytes;   /* values and bytes of a block */
    cam_decode_row *decode;
    cam_encode_row *encode;        /* NULL: decode only */
} cam_codec;

/* Indexed by type id, GGUF's or our own from 64 on; an unused id has block 0. */
enum { N_CODECS = 69 };
static const cam_codec codecs[N_CODECS];

/* Bytes of a row of n values; 0 for a type without codec. */
INLINE uint64_t codec_row_bytes(uint32_t type, uint32_t n) {
    const cam_codec *codec = &codecs[type];
    return codec->block ? (uint64_t)(n / codec->block) * codec->block_bytes : 0;
}
