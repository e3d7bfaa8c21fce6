// q6_k: {low: u8[128], high: u8[64], scales: i8[16], d: f16}; value = (d * scale) * (q - 32).
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 210;
  uint r = unit % 32, quarter = r % 16 / 4;
  const device uchar *low = b + r / 16 * 64 + quarter % 2 * 32 + r % 4 * 8, *high = b + 128 + r / 16 * 32 + r % 4 * 8;
  float scale = half_at(b + 208) * float(char(b[192 + r / 2]));
  for (uint i = 0; i < 8; i++) {
    uint q = (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4;
    out[i] = scale * float(int(q) - 32);
  }
}
