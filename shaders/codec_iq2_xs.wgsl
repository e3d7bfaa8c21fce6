// iq2_xs: planes {q: u16[32]}, {scales: 16 x 4 bit}, {d: f16}; q = 9 bits of index, 7 of signs.
fn run_of(pair: u32) -> vec4<u32> {
  let first = with_signs(entry(pair & 511u), even_signs(pair, 9u));
  return vec4(first, with_signs(entry((pair >> 16u) & 511u), even_signs(pair, 25u)));
}

fn packed_at(row: u32, c: u32) -> Packed {
  let number = chunk_number(row, c);
  let s = words[PLANE_1 + row * (K / 128u) + c / 4u] >> (c % 4u * 8u);
  let scale = half_of(PLANE_2, number / 8u, c, 8u) * quarters(s);
  return Packed(run_of(words[2u * number]), run_of(words[2u * number + 1u]), scale, vec2(0.0));
}
