// kv_q4_0: rows of blocks {d: f16, q: u8[16]}, low nibbles first; value = (q - 8) * d.
inline float nibble(uint q, uint shift) { return float(int(q >> shift & 15) - 8); }
inline float one_at(const device uchar *row, uint c) {
  const device uchar *b = row + c / 32 * 18;
  return nibble(b[2 + c % 16], c % 32 / 16 * 4) * float(*(const device half *)b);
}
inline float4 four_at(const device uchar *row, uint c) {
  const device uchar *b = row + c / 32 * 18, *q = b + 2 + c % 16;
  float d = float(*(const device half *)b);
  uint shift = c % 32 / 16 * 4;
  return float4(nibble(q[0], shift) * d, nibble(q[1], shift) * d, nibble(q[2], shift) * d, nibble(q[3], shift) * d);
}
