// iq4_xs: planes {q: u8[128]}, {d: f16, high: 8 x 2 bit, low: 8 x 4 bit}; value = (d * (scale - 32)) * book[q].
fn coded_at(row: u32, c: u32) -> Coded {
  let at = PLANE_1 + block_number(row, c) * 2u;
  let part = c % 8u;
  let low = (words[at + 1u] >> (4u * part)) & 15u;
  let high = (words[at] >> (16u + 2u * part)) & 3u;
  let scale = unpack2x16float(words[at]).x * (f32(low | (high << 4u)) - 32.0);
  return Coded(weights[chunk_number(row, c)], vec2(scale));
}
