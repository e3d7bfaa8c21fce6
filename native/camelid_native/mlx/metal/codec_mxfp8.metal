// mxfp8: {e: E8M0, q: E4M3[32]}; value = 2^(e - 127) * q. A block begins at any address. Numbers are doubled, so the power
// is half of it. A GPU may take subnormal float32 as 0: codes below 8 are counts, not bits, and for e = 0 and 1 numbers
// are a quarter and the power is 4 times as high. The exponent of float32 is 120 higher than E4M3's.
inline float doubled(uint code) {
  uint size = code & 127;
  float power = as_type<float>(uint(121 + 127) << 23);
  float magnitude = size < 8 ? float(size) * 0.00390625f : as_type<float>(size << 20) * power;
  return size == 127 ? as_type<float>(0x7fc00000u) : code > 127 ? -magnitude : magnitude;
}
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 4 * 33, *q = b + 1 + unit % 4 * 8;
  uint e = b[0];
  float part = e < 2 ? 0.25f : 1.0f, scale = as_type<float>((e < 2 ? e + 1 : e - 1) << 23);
  for (uint i = 0; i < 8; i++) out[i] = doubled(q[i]) * part * scale;
}
