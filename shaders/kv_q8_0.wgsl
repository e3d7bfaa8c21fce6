// kv_q8_0: values 4 * i to 4 * i + 3 of a state row of `width` values. A row is all quants (4 per word), then
// all scales (2 f16 per word, one per block of 32).
fn stored4(tensor: u32, row: u32, width: u32, i: u32) -> vec4<f32> {
  let at = row * (width / 4u + (width / 32u + 1u) / 2u);
  let block = i / 8u;
  let pair = unpack2x16float(word(tensor, at + width / 4u + block / 2u));
  return select(pair.x, pair.y, block % 2u == 1u) * vec4<f32>(unpack4xI8(word(tensor, at + i)));
}
