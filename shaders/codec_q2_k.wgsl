// q2_k: planes {scales: u8[16], q: u8[64]}, {d: f16, dmin: f16}; runs of 16 weights, 32 apart.
fn packed_at(row: u32, c: u32) -> Packed {
  let block = block_number(row, c);
  let part = c % 8u;  // of 32 weights
  let group = part / 2u * 4u + part % 2u;
  let shift = vec4(part / 2u % 2u * 4u);
  let w = weights[5u * block + 1u + part / 4u * 2u + part % 2u] >> shift;
  let s = vec2(byte(20u * block, group), byte(20u * block, group + 2u));
  let d = unpack2x16float(words[PLANE_1 + block]);
  return two_bit_pairs(w, d.x * vec2<f32>(s & vec2(15u)), -d.y * vec2<f32>(s >> vec2(4u)));
}
