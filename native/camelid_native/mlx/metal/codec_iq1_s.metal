// iq1_s: {d: f16, indices: u8[32], high: u16[8]}; `high` = bits 8 to 10 of 4 indices, 3 bits of scale, the sign of delta;
// value = (d * (2 * scale + 1)) * (entry + delta).
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 50;
  uint r = unit % 32, high = two_bytes(b + 34 + r / 4 * 2), entry = b[2 + r] | (high >> (r % 4 * 3) & 7) << 8;
  float scale = half_at(b) * float(2 * (high >> 12 & 7) + 1), delta = high >> 15 ? -0.125f : 0.125f;
  for (uint i = 0; i < 8; i++) out[i] = scale * (grid_value(entry, i) + delta);
}
