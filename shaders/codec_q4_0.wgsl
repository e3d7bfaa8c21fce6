// q4_0: planes {q: u8[16]}, {d: f16}; value = (q - 8) * d.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  return nibbles(weights[block], vec2(half_of(PLANE_1, block, c, 1u)), vec2(0.0));
}
