// mxfp4: {e: E8M0, q: u8[16]}, low nibbles first; value = 2^(e - 127) * E2M1. A block begins at any address. VALUES are
// doubled, so the power is half of it. For e = 0 and 1 it would be subnormal, which a GPU may take as 0: there VALUES are
// a quarter and the power is 4 times as high.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 17, *q = b + 1 + unit % 2 * 8;
  uint e = b[0], shift = unit % 4 / 2 * 4;
  float part = e < 2 ? 0.25f : 1.0f, scale = as_type<float>((e < 2 ? e + 1 : e - 1) << 23);
  for (uint i = 0; i < 8; i++) out[i] = float(VALUES[q[i] >> shift & 15]) * part * scale;
}
