// kv_q8_0: rows of blocks {d: f16, q: i8[32]}; value = q * d.
inline float one_at(const device uchar *row, uint c) {
  const device uchar *b = row + c / 32 * 34;
  return float(char(b[2 + c % 32])) * float(*(const device half *)b);
}
inline float4 four_at(const device uchar *row, uint c) {
  const device uchar *b = row + c / 32 * 34, *q = b + 2 + c % 32;
  float d = float(*(const device half *)b);
  return float4(float(char(q[0])) * d, float(char(q[1])) * d, float(char(q[2])) * d, float(char(q[3])) * d);
}
