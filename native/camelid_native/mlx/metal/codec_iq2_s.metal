// iq2_s: {d: f16, indices: u8[32], signs: u8[32], high: 32 x 2 bit, scales: 16 x 4 bit}; `high` = bits 8 and 9 of an
// index.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 82;
  uint r = unit % 32, entry = b[2 + r] | (b[66 + r / 4] >> (r % 4 * 2) & 3) << 8, signs = b[34 + r];
  float scale = half_at(b) * (float(b[74 + r / 4] >> (r / 2 % 2 * 4) & 15) + 0.5f) * 0.25f;
  for (uint i = 0; i < 8; i++) out[i] = with_sign(scale * grid_value(entry, i), signs, i);
}
