// tq2_0: {q: u8[64], d: f16}; value = (q - 1) * d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 66;
  uint r = unit % 32, shift = r % 16 / 4 * 2;
  const device uchar *q = b + r / 16 * 32 + r % 4 * 8;
  float d = half_at(b + 64);
  for (uint i = 0; i < 8; i++) out[i] = float(int(q[i] >> shift & 3) - 1) * d;
}
