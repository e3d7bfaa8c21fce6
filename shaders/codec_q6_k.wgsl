// q6_k: planes {low: u8[128], high: u8[64], scales: i8[16]}, {d: f16}; runs of 16 weights, 64 apart;
// value = (d * scale) * (q - 32).
fn scales_of(block: u32, part: u32) -> vec2<f32> {
  let scales = weights[13u * block + 12u];
  let bytes = select(scales.xy, scales.zw, part >= 4u) << vec2(24u - part % 4u * 8u);
  return vec2<f32>(bitcast<vec2<i32>>(bytes) >> vec2(24u));
}

fn packed_at(row: u32, c: u32) -> Packed {
  let block = block_number(row, c);
  let part = c % 8u;
  let high = weights[13u * block + 8u + part / 4u * 2u + part % 2u] >> vec4(part / 2u % 2u * 2u);
  let w = weights[13u * block + part];
  let a = (w & vec4(NIBBLES)) | ((high & vec4(PAIRS_OF_BITS)) << vec4(4u));
  let b = ((w >> vec4(4u)) & vec4(NIBBLES)) | (((high >> vec4(4u)) & vec4(PAIRS_OF_BITS)) << vec4(4u));
  let scale = half_of(PLANE_1, block, c, 8u) * scales_of(block, part);
  return Packed(a, b, scale, vec2(0.0));
}
