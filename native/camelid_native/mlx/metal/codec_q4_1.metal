// q4_1: {d: f16, m: f16, q: u8[16]}, low nibbles first; value = d * q + m.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 20, *q = b + 4 + unit % 2 * 8;
  float d = half_at(b), m = half_at(b + 2);
  uint shift = unit % 4 / 2 * 4;
  for (uint i = 0; i < 8; i++) out[i] = d * float(q[i] >> shift & 15) + m;
}
