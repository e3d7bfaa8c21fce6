// nvfp4: planes {q: u8[32]}, {scales: UE4M3[4]}; 8 bytes have 16 weights, the low nibbles first.
fn scale_of(code: u32) -> f32 {  // half of E4M3 in the low 7 bits; 0x7f, NaN in E4M3, is 0
  let exponent = (code >> 3u) & 15u;
  let whole = f32((code & 7u) + select(0u, 8u, exponent > 0u));
  return select(ldexp(whole, i32(max(exponent, 1u)) - 11), 0.0, code == 0x7fu);
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let w = weights[number];
  let low = w & vec4(NIBBLES);
  let high = (w >> vec4(4u)) & vec4(NIBBLES);
  let q = valued_runs(vec4(low.xy, high.xy), vec4(low.zw, high.zw), VALUES);
  let scale = vec2(scale_of(byte(PLANE_1, 2u * number)), scale_of(byte(PLANE_1, 2u * number + 1u)));
  return Chunk(q, scale, vec2(0.0));
}
