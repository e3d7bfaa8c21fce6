// q3_k: {high: u8[32], q: u8[64], scales: u8[12], d: f16}; value = (d * (scale - 32)) * (q - 4 where the high bit is 0).
inline int scale_at(const device uchar *s, uint g) {
  uint low = s[g % 8] >> (g / 8 * 4) & 15, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
  return int(low | high << 4) - 32;
}

inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 110;
  uint r = unit % 32, shift = r % 16 / 4 * 2, bit = r / 4;
  const device uchar *high = b + r % 4 * 8, *q = b + 32 + r / 16 * 32 + r % 4 * 8;
  float scale = half_at(b + 108) * float(scale_at(b + 96, r / 2));
  for (uint i = 0; i < 8; i++) out[i] = scale * float(int((q[i] >> shift & 3) | (high[i] >> bit & 1) << 2) - 4);
}
