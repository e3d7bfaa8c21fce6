// iq1_s: planes {indices: u8[32], high: u16[8]}, {d: f16}; `high` = bits 8 to 10 of 4 indices, 3 bits of scale,
// the sign of delta; value = (d * (2 * scale + 1)) * (entry + delta).
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 12u;
  let part = number % 8u;
  let high = words[at + 8u + part / 2u] >> (16u * (part % 2u));
  let index = unpack4xU8(words[at + part]) | (((vec4(high) >> vec4(0u, 3u, 6u, 9u)) & vec4(7u)) << vec4(8u));
  let scale = half(PLANE_1, number / 8u) * f32(2u * ((high >> 12u) & 7u) + 1u);
  let delta = select(0.125, -0.125, (high & 0x8000u) != 0u);
  return Chunk(entries(index, vec4(0u)), vec2(scale), vec2(scale * delta));
}
