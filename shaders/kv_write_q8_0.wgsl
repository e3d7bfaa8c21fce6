// kv_write_q8_0: blocks of 32, as in GGUF. The scale is max |x| / 127, stored as f16; a quant is x / scale,
// with the scale before rounding, rounded half away from zero.
const TILE_WORDS: u32 = 16u;
const SCALE_WORDS: u32 = 1u;

fn scale_of(block: u32) -> f32 {
  var top = 0u;  // bits of a magnitude, which sort like the magnitudes, with NaN above all
  for (var i = 0u; i < 32u; i++) { top = max(top, bitcast<u32>(tile[32u * block + i]) & 0x7fffffffu); }
  return bitcast<f32>(top) / 127.0;
}

fn quants(i: u32) -> u32 {
  let scale = scale_of(i / 8u);
  let x = vec4(tile[4u * i], tile[4u * i + 1u], tile[4u * i + 2u], tile[4u * i + 3u]);
  let size = abs(x * select(1.0 / scale, 0.0, scale == 0.0));
  let whole = floor(size);
  return pack4xI8(vec4<i32>(sign(x) * (whole + floor(2.0 * (size - whole)))));
}

fn scales() -> u32 { return half_bits(scale_of(0u)) | (half_bits(scale_of(1u)) << 16u); }
