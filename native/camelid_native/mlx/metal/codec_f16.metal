// f16: exact in float32.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device half *at = (const device half *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) out[i] = float(at[i]);
}
