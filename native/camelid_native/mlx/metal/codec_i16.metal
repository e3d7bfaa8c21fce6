// i16: signed words.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device short *at = (const device short *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) out[i] = float(at[i]);
}
