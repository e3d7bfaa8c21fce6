// iq3_xxs: planes {indices: u8[64], 8 x {signs: 4 x 7 bit, scale: 4 bit}}, {d: f16}.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 24u;
  let part = number % 8u;
  let word = words[at + 16u + part];
  let scale = half(PLANE_1, number / 8u) * (f32(word >> 28u) + 0.5) * 0.5;
  let low = unpack4xU8(words[at + 2u * part]);
  return Chunk(entries(low, unpack4xU8(words[at + 2u * part + 1u]), even_signs(word)), vec2(scale), vec2(0.0));
}
