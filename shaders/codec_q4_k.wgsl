// q4_k: the file's block of 144 bytes {d, dmin, scales: u8[12], q: u8[128]}; runs of 16 weights, 32 apart.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let at = number / 8u * 9u;
  let part = number % 8u;
  let s = scales_of(weights[at], part / 2u);
  return Chunk(nibble_runs(weights[at + 1u + part]), nibble_scale(s.scale), s.minimum);
}
