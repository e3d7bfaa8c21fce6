// iq2_xs: planes {q: u16[32]}, {scales: 16 x 4 bit}, {d: f16}; q = 9 bits of index, 7 of signs.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let pairs = vec2(words[2u * number], words[2u * number + 1u]);
  let q = (pairs.xxyy >> vec4(0u, 16u, 0u, 16u)) & vec4(0xffffu);
  let s = byte(PLANE_1, number);
  let scale = half(PLANE_2, number / 8u) * (vec2(f32(s & 15u), f32(s >> 4u)) + 0.5) * 0.25;
  return Chunk(entries(q & vec4(511u), even(q >> vec4(9u))), scale, vec2(0.0));
}
