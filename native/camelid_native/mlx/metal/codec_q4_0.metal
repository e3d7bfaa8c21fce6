// q4_0: {d: f16, q: u8[16]}, low nibbles first; value = (q - 8) * d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 18, *q = b + 2 + unit % 2 * 8;
  float d = half_at(b);
  uint shift = unit % 4 / 2 * 4;
  for (uint i = 0; i < 8; i++) out[i] = float(int(q[i] >> shift & 15) - 8) * d;
}
