// kv_f16: values 4 * i to 4 * i + 3 of a state row of `width` values; two values per word, unpacked without
// the f16 feature.
fn stored4(tensor: u32, row: u32, width: u32, i: u32) -> vec4<f32> {
  let at = row * (width / 2u) + 2u * i;
  return vec4(unpack2x16float(word(tensor, at)), unpack2x16float(word(tensor, at + 1u)));
}
