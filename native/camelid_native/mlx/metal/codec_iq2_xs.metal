// iq2_xs: {d: f16, q: u16[32], scales: 16 x 4 bit}; q = 9 bits of index, 7 of signs.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 74;
  uint r = unit % 32, q = two_bytes(b + 2 + 2 * r), signs = even_signs(q, 9);
  float scale = half_at(b) * (float(b[66 + r / 4] >> (r / 2 % 2 * 4) & 15) + 0.5f) * 0.25f;
  for (uint i = 0; i < 8; i++) out[i] = with_sign(scale * grid_value(q & 511, i), signs, i);
}
