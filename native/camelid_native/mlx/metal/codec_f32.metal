// f32: as stored.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device float *at = (const device float *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) out[i] = at[i];
}
