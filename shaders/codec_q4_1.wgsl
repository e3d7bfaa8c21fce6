// q4_1: planes {q: u8[16]}, {d: f16, m: f16}; value = d * q + m.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  let d = unpack2x16float(words[PLANE_1 + block]);
  return nibbles(weights[block], d.xx, d.yy);
}
