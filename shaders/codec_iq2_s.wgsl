// iq2_s: planes {indices: u8[32], signs: u8[32], high: u8[8], scales: 16 x 4 bit}, {d: f16}; `high` = bits 8
// and 9 of each index.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 20u;
  let part = number % 8u;
  let high = (vec4(byte(at + 16u, part)) >> vec4(0u, 2u, 4u, 6u)) & vec4(3u);
  let s = byte(at + 18u, part);
  let scale = half(PLANE_1, number / 8u) * (vec2(f32(s & 15u), f32(s >> 4u)) + 0.5) * 0.25;
  let index = unpack4xU8(words[at + part]) | (high << vec4(8u));
  return Chunk(entries(index, unpack4xU8(words[at + 8u + part])), scale, vec2(0.0));
}
