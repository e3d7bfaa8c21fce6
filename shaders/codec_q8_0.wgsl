// q8_0: planes {q: i8[32]}, {d: f16}; value = q * d.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  return Packed(weights[2u * block], weights[2u * block + 1u], vec2(half_of(PLANE_1, block, c, 1u)), vec2(0.0));
}
