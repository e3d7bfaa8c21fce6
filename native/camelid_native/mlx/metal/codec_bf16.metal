// bf16: the upper half of a float32.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device ushort *at = (const device ushort *)blocks + unit * 8;
  for (uint i = 0; i < 8; i++) out[i] = as_type<float>(uint(at[i]) << 16);
}
