// iq4_xs: {d: f16, high: 8 x 2 bit, low: 8 x 4 bit, q: u8[128]}; `high`, `low` = the bits of the scales;
// value = (d * (scale - 32)) * VALUES[q].
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 136;
  uint r = unit % 32, g = r / 4, shift = r % 4 / 2 * 4;
  const device uchar *q = b + 8 + g * 16 + r % 2 * 8;
  uint code = (b[4 + g / 2] >> (g % 2 * 4) & 15) | (two_bytes(b + 2) >> (2 * g) & 3) << 4;
  float scale = half_at(b) * float(int(code) - 32);
  for (uint i = 0; i < 8; i++) out[i] = scale * float(VALUES[q[i] >> shift & 15]);
}
