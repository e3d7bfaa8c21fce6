// wide: a magnitude m * 2^e as float32, rounded to nearest, ties to even. Metal has no double.
inline float rounded(ulong m, int e) {
  if (m == 0) return 0.0f;
  int top = 63 - int(clz(m)) + e;  // exponent of the highest bit
  if (top > 127) return as_type<float>(0x7F800000u);
  int drop = max(top, -126) - 23 - e;  // lowest bits that float32 has no place for
  if (drop > 63) return 0.0f;
  ulong kept = drop > 0 ? m >> drop : m << -drop;
  ulong rest = drop > 0 ? m & ((1ul << drop) - 1) : 0, tie = drop > 0 ? 1ul << (drop - 1) : 1;
  kept += rest > tie || (rest == tie && (kept & 1)) ? 1 : 0;
  uint exponent = top < -126 ? 0 : uint(top + 126);  // the highest bit of `kept` adds one
  return as_type<float>((exponent << 23) + uint(kept));
}
