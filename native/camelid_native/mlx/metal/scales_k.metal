// scales_k: q4_k and q5_k have 8 scales and 8 minimums of six bits in 12 bytes; those from the fifth on are in parts.
inline uint scale_k(const device uchar *s, uint g) {
  return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
}
inline uint minimum_k(const device uchar *s, uint g) {
  return g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4;
}
