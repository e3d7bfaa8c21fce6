// iq2_xxs: planes {8 x {indices: u8[4], signs: 4 x 7 bit, scale: 4 bit}}, {d: f16}.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let word = words[2u * number + 1u];
  let scale = half(PLANE_1, number / 8u) * (f32(word >> 28u) + 0.5) * 0.25;
  return Chunk(entries(unpack4xU8(words[2u * number]), even_signs(word)), vec2(scale), vec2(0.0));
}
