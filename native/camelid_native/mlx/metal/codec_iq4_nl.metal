// iq4_nl: {d: f16, q: u8[16]}, low nibbles first; value = d * VALUES[q].
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 18, *q = b + 2 + unit % 2 * 8;
  float d = half_at(b);
  uint shift = unit % 4 / 2 * 4;
  for (uint i = 0; i < 8; i++) out[i] = d * float(VALUES[q[i] >> shift & 15]);
}
