// i8: signed bytes.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  for (uint i = 0; i < 8; i++) out[i] = float(char(blocks[unit * 8 + i]));
}
