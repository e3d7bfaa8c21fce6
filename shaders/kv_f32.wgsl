// kv_f32: values 4 * i to 4 * i + 3 of a state row of `width` values; one value per word.
fn stored4(tensor: u32, row: u32, width: u32, i: u32) -> vec4<f32> {
  let at = row * width + 4u * i;
  let words = vec4(word(tensor, at), word(tensor, at + 1u), word(tensor, at + 2u), word(tensor, at + 3u));
  return bitcast<vec4<f32>>(words);
}
