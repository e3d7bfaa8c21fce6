// product: sums of a simdgroup, of WEIGHT_ROWS rows of a matrix by up to M rows of x.
//
// Order of sums. A unit is 8 neighbouring columns, and unit u belongs to lane u % 32. The products of a unit are a chain
// of fused sums from 0; a lane adds its units in ascending order; lanes are added as in lane_sum. So the bits of a row
// depend on the shape of the matrix alone: not on M, nor on the kernel.
//
// Constants: N outputs, OUTPUTS of a simdgroup, PARTS (2: gate and up), UNITS of a row, ROW_BYTES, X_COLS.
constant constexpr uint WEIGHT_ROWS = PARTS * OUTPUTS;

// A matrix of gate and up: the second half begins N rows on, or is a matrix of its own.
struct Weights { const device uchar *first, *second; };

// Row r of the simdgroup, whose first output is `output`. Rows behind the last output are the last one again.
inline const device uchar *weight_row(Weights weights, uint output, uint r) {
  ulong row = min(output + r % OUTPUTS, N - 1);
  return (r < OUTPUTS ? weights.first : weights.second) + row * ROW_BYTES;
}

inline void load8(const device float *from, thread float *to) {
  float4 a = ((const device float4 *)from)[0], b = ((const device float4 *)from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

inline float dot8(const thread float *w, const thread float *v) {
  float sum = 0.0f;
  for (uint i = 0; i < 8; i++) sum = fma(w[i], v[i], sum);
  return sum;
}

// Adds a unit of columns: sums[r][t] += w[r] . x[t] for the rows of x that live.
template <uint M>
inline void add_unit(const thread float (&w)[WEIGHT_ROWS][8], const device float *x, uint unit, uint live,
                     thread float (&sums)[WEIGHT_ROWS][M]) {
  for (uint t = 0; t < M; t++) {
    if (t >= live) continue;  // bounds of loops stay constant, so that sums stay in registers
    float v[8];
    load8(x + t * X_COLS + unit * 8, v);
    for (uint r = 0; r < WEIGHT_ROWS; r++) sums[r][t] = sums[r][t] + dot8(w[r], v);
  }
}

// Sums of a lane's units, for few rows of x: a unit of weights is decoded once for all of them.
template <uint M>
inline void multiply(Weights weights, uint output, const device float *x, uint live, uint lane,
                     thread float (&sums)[WEIGHT_ROWS][M]) {
  for (uint unit = lane; unit < UNITS; unit += LANES) {
    float w[WEIGHT_ROWS][8];
    for (uint r = 0; r < WEIGHT_ROWS; r++) decode8(weight_row(weights, output, r), unit, w[r]);
    add_unit<M>(w, x, unit, live, sums);
  }
}

template <uint M> inline void add_lanes(thread float (&sums)[WEIGHT_ROWS][M]) {
  for (uint r = 0; r < WEIGHT_ROWS; r++)
    for (uint t = 0; t < M; t++) sums[r][t] = lane_sum(sums[r][t]);
}
