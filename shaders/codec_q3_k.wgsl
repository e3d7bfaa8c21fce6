// q3_k: planes {high: u8[32], q: u8[64]}, {scales: u8[12]}, {d: f16}; runs of 16 weights, 32 apart;
// value = (d * (scale - 32)) * (q - 4).
fn scales_of(block: u32, part: u32) -> vec2<f32> {
  let at = PLANE_1 + 3u * block;
  let shift = part % 2u * 8u;
  let low = words[at + part / 2u % 2u] >> (shift + part / 4u * 4u);
  let high = words[at + 2u] >> (shift + part / 2u * 2u);
  let both = (low & 0x0f000fu) | ((high & 0x030003u) << 4u);
  return vec2(f32(both & 0xffffu), f32(both >> 16u)) - 32.0;
}

fn packed_at(row: u32, c: u32) -> Packed {
  let block = block_number(row, c);
  let part = c % 8u;
  let high = weights[6u * block + part % 2u] >> vec4(part / 2u * 2u);
  let w = weights[6u * block + 2u + part / 4u * 2u + part % 2u] >> vec4(part / 2u % 2u * 4u);
  let a = (w & vec4(PAIRS_OF_BITS)) | ((high & vec4(ONES)) << vec4(2u));
  let b = (w & vec4(NEXT_PAIRS)) | ((high & vec4(2u * ONES)) << vec4(3u));
  let scale = half_of(PLANE_2, block, c, 8u) * scales_of(block, part);
  return Packed(a, b, scale, vec2(0.0));
}
