// f16: two weights per word, unpacked without the f16 feature. A unit is 8 weights.
fn decode8(unit: u32) -> mat2x4<f32> {
  let at = 4u * unit;
  let low = vec4(unpack2x16float(weights[at]), unpack2x16float(weights[at + 1u]));
  return mat2x4<f32>(low, vec4(unpack2x16float(weights[at + 2u]), unpack2x16float(weights[at + 3u])));
}
