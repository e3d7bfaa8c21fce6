// iq2_xxs: planes {8 x {indices: u8[4], signs: 4 x 7 bit, scale: 4 bit}}, {d: f16}.
fn packed_at(row: u32, c: u32) -> Packed {
  let number = chunk_number(row, c);
  let index = unpack4xU8(words[2u * number]);
  let word = words[2u * number + 1u];
  let first = with_signs(entry(index.x), even_signs(word, 0u));
  let second = with_signs(entry(index.y), even_signs(word, 7u));
  let third = with_signs(entry(index.z), even_signs(word, 14u));
  let fourth = with_signs(entry(index.w), even_signs(word, 21u));
  let scale = half_of(PLANE_1, number / 8u, c, 8u) * (0.25 * f32(word >> 28u) + 0.125);
  return Packed(vec4(first, second), vec4(third, fourth), vec2(scale), vec2(0.0));
}
