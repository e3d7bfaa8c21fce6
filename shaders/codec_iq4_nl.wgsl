// iq4_nl: planes {q: u8[16]}, {d: f16}; value = d * book[q].
fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  return Chunk(paired_runs(weights[block]), vec2(half_of(PLANE_1, row, c, 1u)), vec2(0.0));
}
