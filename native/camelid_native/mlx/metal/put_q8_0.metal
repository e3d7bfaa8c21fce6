// put_q8_0: d is max |x| / 127, and a quant x / d rounded half away from zero, with d before its rounding to a half.
constant constexpr uint BLOCK_BYTES = 34;
inline void put(device uchar *block, float v, uint lane) {
  float d = as_type<float>(lane_max(magnitude(v))) / 127.0f, size = min(abs(v * inverse_of(d)), 127.0f);
  int whole = int(size), near = whole + int(2.0f * (size - float(whole)));
  put_scale(block, d, lane);
  block[2 + lane] = uchar(v < 0.0f ? -near : near);
}
