// q5_1: planes {q: u8[16]}, {d: f16, m: f16, high: u32}; value = d * q + m.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  let high = words[PLANE_1 + 2u * block + 1u];
  let d = unpack2x16float(words[PLANE_1 + 2u * block]);
  let w = weights[block];
  let a = (w & vec4(NIBBLES)) | (spread_words(high) << vec4(4u));
  let b = ((w >> vec4(4u)) & vec4(NIBBLES)) | (spread_words(high >> 16u) << vec4(4u));
  return Packed(a, b, d.xx, d.yy);
}
