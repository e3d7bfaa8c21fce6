// q4_0, repacked: all quants (8 per word, in order), then all scales (2 f16 per word). A unit is 8 weights, a
// block 4 units.
override SCALES_AT: u32 = 0u;

fn decode8(unit: u32) -> mat2x4<f32> {
  let block = unit / 4u;
  let pair = unpack2x16float(weights[SCALES_AT + block / 2u]);
  let scale = select(pair.x, pair.y, block % 2u == 1u);
  let quants = vec4<u32>(weights[unit]) >> vec4<u32>(0u, 4u, 8u, 12u);
  let low = vec4<f32>(quants & vec4<u32>(15u)) - 8.0;
  return mat2x4<f32>(scale * low, scale * (vec4<f32>((quants >> vec4<u32>(16u)) & vec4<u32>(15u)) - 8.0));
}
