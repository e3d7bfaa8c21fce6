// iq3_s: {d: f16, indices: u8[64], high: u8[8], signs: u8[32], scales: 8 x 4 bit}; `high` = bit 8 of an index; an entry
// has 4 values.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 110, *index = b + 2 + unit % 32 * 2;
  uint r = unit % 32, high = b[66 + r / 4] >> (r % 4 * 2), signs = b[74 + r];
  float scale = half_at(b) * float(1 + 2 * (b[106 + r / 8] >> (r / 4 % 2 * 4) & 15));
  for (uint i = 0; i < 8; i++) {
    uint entry = index[i / 4] | (high >> i / 4 & 1) << 8;
    out[i] = with_sign(scale * grid_value(entry, i % 4), signs, i);
  }
}
