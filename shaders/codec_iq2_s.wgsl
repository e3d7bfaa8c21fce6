// iq2_s: planes {indices: u8[32], signs: u8[32], high: u8[8], scales: 16 x 4 bit}, {d: f16}; `high` = bits 8
// and 9 of each index.
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 20u;
  let part = c % 8u;
  let signs = words[at + 8u + part];
  let high = words[at + 16u + part / 4u] >> (part % 4u * 8u);
  let top = (vec4(high) << vec4(8u, 6u, 4u, 2u)) & vec4(0x300u);
  let index = unpack4xU8(words[at + part]) | top;
  let first = with_signs(entry(index.x), byte_signs(signs, 0u));
  let second = with_signs(entry(index.y), byte_signs(signs, 8u));
  let third = with_signs(entry(index.z), byte_signs(signs, 16u));
  let fourth = with_signs(entry(index.w), byte_signs(signs, 24u));
  let scale = half_of(PLANE_1, block_number(row, c), c, 8u) * quarters(words[at + 18u + part / 4u] >> (part % 4u * 8u));
  return Packed(vec4(first, second), vec4(third, fourth), scale, vec2(0.0));
}
