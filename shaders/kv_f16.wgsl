// kv_f16: four values from 4 * i of a state row of `width`; two values a word, unpacked without the f16 feature.
fn stored4(tensor: u32, row: u32, width: u32, i: u32) -> vec4<f32> {
  let at = row * (width / 2u) + 2u * i;
  return vec4(unpack2x16float(word(tensor, at)), unpack2x16float(word(tensor, at + 1u)));
}
