// q4_k: the file's block of 144 bytes {d, dmin, scales: u8[12], q: u8[128]}; runs of 16 weights, 32 apart.
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 9u;
  let part = c % 8u;
  let s = scales_of(weights[at], part / 2u);
  return nibbles(weights[at + 1u + part], s.scale, s.minimum);
}
