// affine2: {d: f16, m: f16, q: u8[8]}, lowest bits first; value = d * q + m.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 12;
  float d = half_at(b), m = half_at(b + 2);
  uint q = two_bytes(b + 4 + unit % 4 * 2);
  for (uint i = 0; i < 8; i++) out[i] = d * float(q >> (2 * i) & 3) + m;
}
