// q1_0: planes {q: u8[16]} of 128 bits, {d: f16}; value = d if the bit is set, else -d.
fn packed_at(row: u32, c: u32) -> Packed {
  let number = chunk_number(row, c);
  let bits = words[number];
  let d = half_of(PLANE_1, number / 4u, c, 4u);
  return Packed(spread_words(bits), spread_words(bits >> 16u), vec2(2.0 * d), vec2(-d));
}
