// iq1_m: {indices: u8[32], high: 32 x 4 bit, scales: u16[4]}; `high` = bits 8 to 10 of an index, the sign of delta; a word
// of `scales` = 4 scales of 3 bits, a nibble of the f16 d.
inline float d_of(const device uchar *s) {
  uint bits = 0;
  for (uint i = 0; i < 4; i++) bits |= two_bytes(s + 2 * i) >> 12 << (4 * i);
  return float(as_type<half>(ushort(bits)));
}

inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 56;
  uint r = unit % 32, high = b[32 + r / 2] >> (r % 2 * 4) & 15, entry = b[r] | (high & 7) << 8;
  uint code = two_bytes(b + 48 + r / 8 * 2) >> (r / 2 % 4 * 3) & 7;
  float scale = d_of(b + 48) * float(2 * code + 1), delta = high >> 3 ? -0.125f : 0.125f;
  for (uint i = 0; i < 8; i++) out[i] = scale * (grid_value(entry, i) + delta);
}
