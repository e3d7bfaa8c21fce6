// iq4_nl: planes {q: u8[16]}, {d: f16}; value = d * book[q].
fn coded_at(row: u32, c: u32) -> Coded {
  return Coded(weights[chunk_number(row, c)], vec2(half_of(PLANE_1, chunk_number(row, c), c, 1u)));
}
