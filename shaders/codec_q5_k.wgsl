// q5_k: the file's block of 176 bytes {d, dmin, scales: u8[12], high: u8[32], q: u8[128]}; as q4_k.
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 11u;
  let part = c % 8u;
  let s = scales_of(weights[at], part / 2u);
  let high = weights[at + 1u + part % 2u] >> vec4(part / 2u * 2u);
  let w = weights[at + 3u + part];
  let a = (w & vec4(NIBBLES)) | ((high & vec4(ONES)) << vec4(4u));
  let b = ((w >> vec4(4u)) & vec4(NIBBLES)) | (((high >> vec4(1u)) & vec4(ONES)) << vec4(4u));
  return Packed(a, b, s.scale, s.minimum);
}
