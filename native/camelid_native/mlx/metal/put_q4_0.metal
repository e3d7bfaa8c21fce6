// put_q4_0: d is the first value of largest magnitude / -8, and a quant x / d + 8, with d before its rounding to a half.
constant constexpr uint BLOCK_BYTES = 18;
inline void put(device uchar *block, float v, uint lane) {
  uint top = lane_max(magnitude(v)), behind = lane_max(magnitude(v) == top ? LANES - lane : 0);
  float d = simd_shuffle(v, ushort(LANES - behind)) / -8.0f;
  uint q = uint(max(min(v * inverse_of(d) + 8.5f, 15.0f), 0.0f)), high = simd_shuffle_xor(q, 16);
  put_scale(block, d, lane);
  if (lane < 16) block[2 + lane] = uchar(q | high << 4);
}
