// bf16: two weights per word, each the upper half of an f32. A unit is 8 weights.
fn pair(word: u32) -> vec2<f32> { return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u)); }

fn decode8(unit: u32) -> mat2x4<f32> {
  let at = 4u * unit;
  let low = vec4(pair(weights[at]), pair(weights[at + 1u]));
  return mat2x4<f32>(low, vec4(pair(weights[at + 2u]), pair(weights[at + 3u])));
}
