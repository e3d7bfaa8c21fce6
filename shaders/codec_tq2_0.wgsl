// tq2_0: planes {q: u8[64]}, {d: f16}; runs of 16 weights, 32 apart; value = (q - 1) * d.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = block_number(row, c);
  let part = c % 8u;
  let w = weights[4u * block + part / 4u * 2u + part % 2u] >> vec4(part / 2u % 2u * 4u);
  let d = half_of(PLANE_1, block, c, 8u);
  return two_bit_pairs(w, vec2(d), vec2(0.0));
}
