// q8_0, repacked: all quants (4 a word), then all scales (2 halves a word). A unit is 8 weights, a block 4 units.
override SCALES_AT: u32 = 0u;

fn decode8(unit: u32) -> mat2x4<f32> {
  let block = unit / 4u;
  let pair = unpack2x16float(weights[SCALES_AT + block / 2u]);
  let scale = select(pair.x, pair.y, block % 2u == 1u);
  let low = vec4<f32>(unpack4xI8(weights[2u * unit]));
  return mat2x4<f32>(scale * low, scale * vec4<f32>(unpack4xI8(weights[2u * unit + 1u])));
}
