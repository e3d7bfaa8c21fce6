// iq4_nl: planes {q: u8[16]}, {d: f16}; value = d * VALUES[q].
fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let w = weights[block];
  let q = valued_runs(w & vec4(NIBBLES), (w >> vec4(4u)) & vec4(NIBBLES), VALUES);
  return Chunk(q, vec2(half(PLANE_1, block)), vec2(0.0));
}
