// i64: rounded to nearest, ties to even, once.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device long *at = (const device long *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) {
    float size = rounded(at[i] < 0 ? 0ul - ulong(at[i]) : ulong(at[i]), 0);
    out[i] = at[i] < 0 ? -size : size;
  }
}
