// iq2_xxs: {d: f16, 8 x {indices: u8[4], signs: 4 x 7 bit, scale: 4 bit}}.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 66, *group = b + 2 + unit % 32 / 4 * 8;
  uint word = four_bytes(group + 4), signs = even_signs(word, unit % 4 * 7), entry = group[unit % 4];
  float scale = half_at(b) * (float(word >> 28) + 0.5f) * 0.25f;
  for (uint i = 0; i < 8; i++) out[i] = with_sign(scale * grid_value(entry, i), signs, i);
}
