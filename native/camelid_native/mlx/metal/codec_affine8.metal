// affine8: {d: f16, m: f16, q: u8[32]}; value = d * q + m.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 36, *q = b + 4 + unit % 4 * 8;
  float d = half_at(b), m = half_at(b + 2);
  for (uint i = 0; i < 8; i++) out[i] = d * float(q[i]) + m;
}
