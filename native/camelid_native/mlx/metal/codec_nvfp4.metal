// nvfp4: {scales: UE4M3[4], q: u8[32]}; 8 bytes have 16 weights, the low nibbles first. VALUES are doubled, so a scale is
// half of E4M3; code 0x7F, NaN in E4M3, is 0, but 0xFF is not.
inline float e4m3(uint code) {
  uint exponent = code >> 3 & 15;
  float whole = float((code & 7) + (exponent ? 8 : 0));
  float power = as_type<float>((max(exponent, 1u) + 116) << 23);
  return code == 0x7F ? 0.0f : whole * power;
}

inline void decode8(const device uchar *blocks, uint unit, thread float *out) {
  const device uchar *b = blocks + unit / 8 * 36;
  uint run = unit % 8 / 2, shift = unit % 2 * 4;
  const device uchar *q = b + 4 + run * 8;
  float scale = e4m3(b[run]);
  for (uint i = 0; i < 8; i++) out[i] = scale * float(VALUES[q[i] >> shift & 15]);
}
