// i32: rounded to nearest, ties to even.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device int *at = (const device int *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) {
    float size = rounded(at[i] < 0 ? ulong(-long(at[i])) : ulong(at[i]), 0);
    out[i] = at[i] < 0 ? -size : size;
  }
}
