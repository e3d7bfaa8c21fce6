// q5_k: {d: f16, dmin: f16, scales: u8[12], high: u8[32], q: u8[128]}: q4_k with fifth bits in `high`.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 176;
  uint r = unit % 32, g = r / 4, shift = g % 2 * 4;
  const device uchar *high = b + 16 + r % 4 * 8, *q = b + 48 + g / 2 * 32 + r % 4 * 8;
  float scale = half_at(b) * float(scale_k(b + 4, g)), minimum = half_at(b + 2) * float(minimum_k(b + 4, g));
  for (uint i = 0; i < 8; i++)
    out[i] = scale * float((q[i] >> shift & 15) | (high[i] >> g & 1) << 4) - minimum;
}
