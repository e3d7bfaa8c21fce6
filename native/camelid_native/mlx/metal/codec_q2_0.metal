// q2_0: {d: f16, q: u8[16]}, lowest bits first; value = (q - 1) * d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 8 * 18;
  float d = half_at(b);
  uint q = two_bytes(b + 2 + unit % 8 * 2);
  for (uint i = 0; i < 8; i++) out[i] = float(int(q >> (2 * i) & 3) - 1) * d;
}
