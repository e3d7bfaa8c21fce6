// iq3_xxs: {d: f16, indices: u8[64], 8 x {signs: 4 x 7 bit, scale: 4 bit}}; an entry has 4 values.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 98, *index = b + 2 + unit % 32 * 2;
  uint word = four_bytes(b + 66 + unit % 32 / 4 * 4), signs = even_signs(word, unit % 4 * 7);
  float scale = half_at(b) * (float(word >> 28) + 0.5f) * 0.5f;
  for (uint i = 0; i < 8; i++) out[i] = with_sign(scale * grid_value(index[i / 4], i % 4), signs, i);
}
