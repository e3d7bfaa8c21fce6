// q5_0: planes {q: u8[16]}, {high: u32} with the fifth bits, {d: f16}; value = (q - 16) * d.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  let high = words[PLANE_1 + block];
  let d = half_of(PLANE_2, block, c, 1u);
  let w = weights[block];
  let a = (w & vec4(NIBBLES)) | (spread_words(high) << vec4(4u));
  let b = ((w >> vec4(4u)) & vec4(NIBBLES)) | (spread_words(high >> 16u) << vec4(4u));
  return Packed(a, b, vec2(d), vec2(0.0));
}
