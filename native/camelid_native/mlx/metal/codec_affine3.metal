// affine3: {d: f16, m: f16, q: u8[12]}, lowest bits first; value = d * q + m.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 16, *at = b + 4 + unit % 4 * 3;
  float d = half_at(b), m = half_at(b + 2);
  uint q = three_bytes(at);
  for (uint i = 0; i < 8; i++) out[i] = d * float(q >> (3 * i) & 7) + m;
}
