// f64: rounded to float32; overflow becomes infinite.
inline float number(uint low, uint high) {
  uint sign = high & 0x80000000u, exponent = high >> 20 & 0x7FF;
  ulong fraction = ulong(high & 0xFFFFF) << 32 | low;
  if (exponent == 0x7FF) return as_type<float>(sign | (fraction ? 0x7FC00000u : 0x7F800000u));
  ulong m = exponent ? fraction | 1ul << 52 : fraction;
  return as_type<float>(sign | as_type<uint>(rounded(m, int(max(exponent, 1u)) - 1075)));
}

inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uint *at = (const device uint *)blocks + unit * 16;
  for (uint i = 0; i < 8; i++) out[i] = number(at[2 * i], at[2 * i + 1]);
}
