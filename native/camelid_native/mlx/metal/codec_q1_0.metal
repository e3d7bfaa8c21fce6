// q1_0: {d: f16, q: u8[16]}, lowest bit first; value = d if the bit is set, else -d.
inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 16 * 18;
  float d = half_at(b);
  uint q = b[2 + unit % 16];
  for (uint i = 0; i < 8; i++) out[i] = (q >> i & 1) ? d : -d;
}
