// iq3_s: planes {indices: u8[64], high: u8[8], signs: u8[32], scales: 8 x 4 bit}, {d: f16}; `high` = bit 8 of
// each index.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 27u;
  let part = number % 8u;
  let high = byte(at + 16u, part);
  let low_bits = ((vec4(high) >> vec4(0u, 1u, 2u, 3u)) & vec4(1u)) << vec4(8u);
  let high_bits = ((vec4(high) >> vec4(4u, 5u, 6u, 7u)) & vec4(1u)) << vec4(8u);
  let scale = half(PLANE_1, number / 8u) * (1.0 + 2.0 * f32((words[at + 26u] >> (4u * part)) & 15u));
  let low = unpack4xU8(words[at + 2u * part]) | low_bits;
  let index = unpack4xU8(words[at + 2u * part + 1u]) | high_bits;
  return Chunk(entries(low, index, unpack4xU8(words[at + 18u + part])), vec2(scale), vec2(0.0));
}
