// kv_plain: values of a row of the KV cache as float32: f32 and f16; c is a multiple of 4.
inline float4 four_at(const device float *row, uint c) { return float4(row[c], row[c + 1], row[c + 2], row[c + 3]); }
inline float4 four_at(const device half *row, uint c) {
  return float4(float(row[c]), float(row[c + 1]), float(row[c + 2]), float(row[c + 3]));
}
inline float one_at(const device float *row, uint c) { return row[c]; }
inline float one_at(const device half *row, uint c) { return float(row[c]); }
