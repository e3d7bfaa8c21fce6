// put: parts of the encoders of rows of the KV cache. A lane has one of a block's 32 values.
inline uint magnitude(float v) { return as_type<uint>(v) & 0x7FFFFFFFu; }
inline float inverse_of(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// The largest bits of the lanes; bits of magnitudes sort like the magnitudes, with NaN above all.
inline uint lane_max(uint bits) {
  for (ushort mask = 1; mask < LANES; mask *= 2) bits = max(bits, simd_shuffle_xor(bits, mask));
  return bits;
}

inline void put_scale(device uchar *block, float d, uint lane) {
  if (lane == 0) *(device ushort *)block = as_type<ushort>(half(d));
}
