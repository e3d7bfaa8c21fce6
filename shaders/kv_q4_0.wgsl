// kv_q4_0: values 4 * i to 4 * i + 3 of a state row of `width` values. A row is all quants, then all scales
// (2 f16 per word, one per block of 32). The 4 words of a block are the file's bytes: values 0-15 in the low
// nibbles, 16-31 in the high nibbles.
fn stored4(tensor: u32, row: u32, width: u32, i: u32) -> vec4<f32> {
  let at = row * (width / 8u + (width / 32u + 1u) / 2u);
  let block = i / 8u;
  let pair = unpack2x16float(word(tensor, at + width / 8u + block / 2u));
  let quants = (word(tensor, at + 4u * block + i % 4u) >> (i & 4u)) & 0x0f0f0f0fu;
  return select(pair.x, pair.y, block % 2u == 1u) * (vec4<f32>(unpack4xU8(quants)) - 8.0);
}
