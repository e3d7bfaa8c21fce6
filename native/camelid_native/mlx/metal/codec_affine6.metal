// affine6: {d: f16, m: f16, q: u8[24]}, lowest bits first; value = d * q + m.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 28, *at = b + 4 + unit % 4 * 6;
  float d = half_at(b), m = half_at(b + 2);
  uint q[2] = {three_bytes(at), three_bytes(at + 3)};
  for (uint i = 0; i < 8; i++) out[i] = d * float(q[i / 4] >> (i % 4 * 6) & 63) + m;
}
