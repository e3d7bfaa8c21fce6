// q4_0: planes {q: u8[16]}, {d: f16}; value = (q - 8) * d.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let d = half(PLANE_1, block);
  return Chunk(nibble_runs(weights[block]), nibble_scale(vec2(d)), vec2(-8.0 * d));
}
