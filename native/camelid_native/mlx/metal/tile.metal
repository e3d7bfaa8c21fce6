// tile: sums of a tile of TILE_ROWS rows of x, TILE_M of each simdgroup, which decode each chunk of the weights together,
// once for all of them. The order of sums is that of product.
constant constexpr uint TILE_SIMDS = 4, TILE_M = 8, TILE_ROWS = TILE_SIMDS * TILE_M;
constant constexpr uint DECODED = WEIGHT_ROWS * LANES * 8;  // 32 units of each row of weights

inline void decode_chunk(threadgroup float *decoded, Weights weights, uint output, uint unit, uint simd, uint lane) {
  if (unit >= UNITS) return;
  for (uint r = simd; r < WEIGHT_ROWS; r += TILE_SIMDS) {
    float w[8];
    decode8(weight_row(weights, output, r), unit, w);
    for (uint i = 0; i < 8; i++) decoded[(r * LANES + lane) * 8 + i] = w[i];
  }
}

inline void add_chunk(const threadgroup float *decoded, const device float *x, uint unit, uint live, uint lane,
                      thread float (&sums)[WEIGHT_ROWS][TILE_M]) {
  if (unit >= UNITS) return;
  float w[WEIGHT_ROWS][8];
  for (uint r = 0; r < WEIGHT_ROWS; r++)
    for (uint i = 0; i < 8; i++) w[r][i] = decoded[(r * LANES + lane) * 8 + i];
  add_unit<TILE_M>(w, x, unit, live, sums);
}

inline void multiply_tile(threadgroup float *decoded, Weights weights, uint output, const device float *x, uint live,
                          uint simd, uint lane, thread float (&sums)[WEIGHT_ROWS][TILE_M]) {
  for (uint chunk = 0; chunk < UNITS; chunk += LANES) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // others may still read the chunk before
    decode_chunk(decoded, weights, output, chunk + lane, simd, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_chunk(decoded, x, chunk + lane, live, lane, sums);
  }
}
