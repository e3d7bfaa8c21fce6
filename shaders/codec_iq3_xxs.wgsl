// iq3_xxs: planes {indices: u8[64], 8 x {signs: 4 x 7 bit, scale: 4 bit}}, {d: f16}.
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 24u;
  let part = c % 8u;
  let a = unpack4xU8(words[at + 2u * part]);
  let b = unpack4xU8(words[at + 2u * part + 1u]);
  let word = words[at + 16u + part];
  let first = with_signs(entries(a.xy), even_signs(word, 0u));
  let second = with_signs(entries(a.zw), even_signs(word, 7u));
  let third = with_signs(entries(b.xy), even_signs(word, 14u));
  let fourth = with_signs(entries(b.zw), even_signs(word, 21u));
  let scale = half_of(PLANE_1, block_number(row, c), c, 8u) * (0.5 * f32(word >> 28u) + 0.25);
  return Packed(vec4(first, second), vec4(third, fourth), vec2(scale), vec2(0.0));
}
