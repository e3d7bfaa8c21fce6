// f32: one weight per word. A unit is 8 weights.
fn decode8(unit: u32) -> mat2x4<f32> {
  let at = 8u * unit;
  let low = vec4(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
  let high = vec4(weights[at + 4u], weights[at + 5u], weights[at + 6u], weights[at + 7u]);
  return mat2x4<f32>(bitcast<vec4<f32>>(low), bitcast<vec4<f32>>(high));
}
