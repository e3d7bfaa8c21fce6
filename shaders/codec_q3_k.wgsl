// q3_k: planes {high: u8[32], q: u8[64]}, {scales: u8[12]}, {d: f16}; runs of 16 weights, 32 apart;
// value = (d * (scale - 32)) * (q - 4).
fn scale_of(block: u32, group: u32) -> f32 {
  let at = 12u * block;
  let low = byte(PLANE_1, at + group % 8u) >> (group / 8u * 4u);
  let high = byte(PLANE_1, at + 8u + group % 4u) >> (group / 4u * 2u);
  return f32((low & 15u) | ((high & 3u) << 4u)) - 32.0;
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let block = number / 8u;
  let part = number % 8u;
  let group = part / 2u * 4u + part % 2u;
  let high = weights[6u * block + part % 2u] >> vec4(part / 2u * 2u);
  let w = weights[6u * block + 2u + part / 4u * 2u + part % 2u] >> vec4(part / 2u % 2u * 4u);
  let a = (w & vec4(PAIRS_OF_BITS)) | ((high & vec4(ONES)) << vec4(2u));
  let b = ((w >> vec4(2u)) & vec4(PAIRS_OF_BITS)) | (((high >> vec4(1u)) & vec4(ONES)) << vec4(2u));
  let scale = half(PLANE_2, block) * vec2(scale_of(block, group), scale_of(block, group + 2u));
  return Chunk(runs(a, b), scale, -4.0 * scale);
}
