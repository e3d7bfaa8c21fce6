/* runtime: threads of a threadgroup as fibers. Kernels call these functions through msl.h. */
#pragma once
#include <stdint.h>

enum { SIMD_LANES = 32, SLOT_BYTES = 16 };

/* Where a thread is, in the order x, y, z. */
struct Place { uint32_t group[3], thread[3], size[3], index; };
typedef void (*Entry)(void **buffers, const Place *place);

extern "C" {
void metal_barrier(int site);  /* of the threadgroup; a site is the line of the call */
/* Exchanges a value with the lanes of a simdgroup: returns their values, SLOT_BYTES apart, valid until the next but
 * one exchange. A simdgroup barrier is an exchange of nothing. */
const void *metal_exchange(const void *value, int n_bytes, int site);
uint32_t metal_lane();
void metal_fresh(void *memory, long n_bytes);  /* threadgroup memory starts as NaN */

/* Buffers of a launch are ranges of one arena with guards between them. */
struct Range { long begin, end; int is_output; long traffic; };
void metal_trace(char *arena, long n_bytes, Range *ranges, int n_ranges, uint32_t *stamps);
/* Whether the processor takes subnormal float32 as 0 while threads run, as a GPU may. */
void metal_flush(int flushes);
/* Runs all threadgroups, one after another; order 1 runs threads backwards. Returns "" or what is wrong. */
const char *metal_run(Entry entry, void **buffers, const uint32_t *grid, const uint32_t *size, int order);
}
