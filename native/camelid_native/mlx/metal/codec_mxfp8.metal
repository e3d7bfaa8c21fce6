// mxfp8: {e: E8M0, q: E4M3[32]}; value = 2^(e - 127) * q. A block begins at any address. The exponent of float32 is 120
// higher than E4M3's; numbers are doubled, so the power is half of it; that of e = 0 and 1 is subnormal.
inline float doubled(uint code) {
  float magnitude = as_type<float>((code & 127) << 20) * as_type<float>(uint((121 + 127) << 23));
  return (code & 127) == 127 ? as_type<float>(0x7fc00000u) : (code & 128) != 0 ? -magnitude : magnitude;
}
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 33, *q = b + 1 + unit % 4 * 8;
  uint e = b[0];
  float scale = as_type<float>(e < 2 ? 0x200000u << e : (e - 1) << 23);
  for (uint i = 0; i < 8; i++) out[i] = scale * doubled(q[i]);
}
