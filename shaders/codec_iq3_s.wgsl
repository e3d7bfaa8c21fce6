// iq3_s: planes {indices: u8[64], high: u8[8], signs: u8[32], scales: 8 x 4 bit}, {d: f16}; `high` = bit 8 of
// each index.
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 27u;
  let part = c % 8u;
  let high = words[at + 16u + part / 4u] >> (part % 4u * 8u);
  let a = unpack4xU8(words[at + 2u * part]) | ((vec4(high) << vec4(8u, 7u, 6u, 5u)) & vec4(256u));
  let b = unpack4xU8(words[at + 2u * part + 1u]) | ((vec4(high) << vec4(4u, 3u, 2u, 1u)) & vec4(256u));
  let signs = words[at + 18u + part];
  let first = with_signs(entries(a.xy), byte_signs(signs, 0u));
  let second = with_signs(entries(a.zw), byte_signs(signs, 8u));
  let third = with_signs(entries(b.xy), byte_signs(signs, 16u));
  let fourth = with_signs(entries(b.zw), byte_signs(signs, 24u));
  let scale = half_of(PLANE_1, block_number(row, c), c, 8u) * (1.0 + 2.0 * f32((words[at + 26u] >> (4u * part)) & 15u));
  return Packed(vec4(first, second), vec4(third, fourth), vec2(scale), vec2(0.0));
}
