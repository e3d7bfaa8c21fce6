// q2_k: {scales: u8[16], q: u8[64], d: f16, dmin: f16}; a scale's low nibble multiplies, its high nibble is a minimum.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 84;
  uint r = unit % 32, shift = r % 16 / 4 * 2, scales = b[r / 2];
  const device uchar *q = b + 16 + r / 16 * 32 + r % 4 * 8;
  float scale = half_at(b + 80) * float(scales & 15), minimum = half_at(b + 82) * float(scales >> 4);
  for (uint i = 0; i < 8; i++) out[i] = scale * float(q[i] >> shift & 3) - minimum;
}
