// iq1_m: planes {indices: u8[32], high: 32 x 4 bit}, {scales: u16[4]}; `high` = bits 8 to 10 of an index and the
// sign of its delta; a word of `scales` = 4 scales of 3 bits, a nibble of the f16 d.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 12u;
  let part = number % 8u;
  let high = (vec4(words[at + 8u + part / 2u] >> (16u * (part % 2u))) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
  var q = entries(unpack4xU8(words[at + part]) | ((high & vec4(7u)) << vec4(8u)), vec4(0u));
  for (var i = 0u; i < 8u; i++) { q[i] += select(0.125, -0.125, high[i / 2u] >= 8u); }
  let s = vec2(words[PLANE_1 + number / 8u * 2u], words[PLANE_1 + number / 8u * 2u + 1u]);
  let top = (s.xxyy >> vec4(12u, 28u, 12u, 28u)) & vec4(15u);
  let d = unpack2x16float(top.x | (top.y << 4u) | (top.z << 8u) | (top.w << 12u)).x;
  let own = s[part / 4u] >> (part / 2u % 2u * 16u + part % 2u * 6u);
  return Chunk(q, d * vec2(f32(2u * (own & 7u) + 1u), f32(2u * ((own >> 3u) & 7u) + 1u)), vec2(0.0));
}
