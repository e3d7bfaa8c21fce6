// tq1_0: {q: u8[48], high: u8[4], d: f16}; a byte is a fraction of 256 with 5 (in `high` 4) base-3 digits, and a product
// with a power of 3 begins with the next one; value = (digit - 1) * d.
inline uint digit_at(const device uchar *b, uint v) {
  uint q = v < 160 ? b[v % 32] : v < 240 ? b[32 + v % 16] : b[48 + v % 4];
  uint number = v < 160 ? v / 32 : v < 240 ? v / 16 - 10 : v / 4 - 60, power = 1;
  for (uint i = 0; i < number; i++) power *= 3;
  return (q * power & 255) * 3 >> 8;
}

inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 32 * 54;
  float d = half_at(b + 52);
  for (uint i = 0; i < 8; i++) out[i] = float(int(digit_at(b, unit % 32 * 8 + i)) - 1) * d;
}
