// q5_0: {d: f16, high: u8[4], q: u8[16]}, low nibbles first, fifth bits in `high`; value = (q - 16) * d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 22, *q = b + 6 + unit % 2 * 8;
  float d = half_at(b);
  uint shift = unit % 4 / 2 * 4, high = b[2 + unit % 4];
  for (uint i = 0; i < 8; i++) out[i] = float(int((q[i] >> shift & 15) | (high >> i & 1) << 4) - 16) * d;
}
