// kv_write_q4_0: blocks of 32, as in GGUF. The scale is the value of largest magnitude / -8, stored as f16; a
// quant is x / scale + 8, with the scale before rounding.
const TILE_WORDS: u32 = 8u;
const SCALE_WORDS: u32 = 1u;

fn scale_of(block: u32) -> f32 {
  var top = 0u;  // bits of a magnitude, which sort like the magnitudes, with NaN above all
  var largest = tile[32u * block];
  for (var i = 0u; i < 32u; i++) {
    let v = tile[32u * block + i];
    let size = bitcast<u32>(v) & 0x7fffffffu;
    if (size > top) { largest = v; }
    top = max(top, size);
  }
  return largest * -0.125;
}

fn quants4(at: u32, inverse: f32) -> vec4<u32> {
  let x = vec4(tile[at], tile[at + 1u], tile[at + 2u], tile[at + 3u]);
  return min(vec4<u32>(x * inverse + 8.5), vec4<u32>(15u));
}

fn quants(i: u32) -> u32 {
  let scale = scale_of(i / 4u);
  let inverse = select(1.0 / scale, 0.0, scale == 0.0);
  let at = 32u * (i / 4u) + 4u * (i % 4u);
  return pack4xU8(quants4(at, inverse) | (quants4(at + 16u, inverse) << vec4<u32>(4u)));
}

fn scales() -> u32 { return half_bits(scale_of(0u)) | (half_bits(scale_of(1u)) << 16u); }
