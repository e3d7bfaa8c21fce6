// q6_k: planes {low: u8[128], high: u8[64], scales: i8[16]}, {d: f16}; runs of 16 weights, 64 apart;
// value = (d * scale) * (q - 32).
fn scale_of(block: u32, group: u32) -> f32 { return f32(bitcast<i32>(byte(52u * block + 48u, group) << 24u) >> 24u); }

fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let block = number / 8u;
  let part = number % 8u;
  let group = part / 4u * 8u + part % 4u;
  let high = weights[13u * block + 8u + part / 4u * 2u + part % 2u] >> vec4(part / 2u % 2u * 2u);
  let w = weights[13u * block + part];
  let a = (w & vec4(NIBBLES)) | ((high & vec4(PAIRS_OF_BITS)) << vec4(4u));
  let b = ((w >> vec4(4u)) & vec4(NIBBLES)) | (((high >> vec4(4u)) & vec4(PAIRS_OF_BITS)) << vec4(4u));
  let scale = half(PLANE_1, block) * vec2(scale_of(block, group), scale_of(block, group + 4u));
  return Chunk(runs(a, b), scale, -32.0 * scale);
}
