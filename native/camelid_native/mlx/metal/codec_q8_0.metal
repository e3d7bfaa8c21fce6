// q8_0: {d: f16, q: i8[32]}; value = q * d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 34, *q = b + 2 + unit % 4 * 8;
  float d = half_at(b);
  for (uint i = 0; i < 8; i++) out[i] = float(char(q[i])) * d;
}
