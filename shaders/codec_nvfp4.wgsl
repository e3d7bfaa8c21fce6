// nvfp4: planes {q: u8[32]}, {scales: UE4M3[4]}; 8 bytes have 16 weights, the low nibbles first.
fn scale_of(code: u32) -> f32 {  // half of E4M3 in the low 7 bits; 0x7f, NaN in E4M3, is 0
  let exponent = (code >> 3u) & 15u;
  let whole = f32((code & 7u) + select(0u, 8u, exponent > 0u));
  return select(ldexp(whole, i32(max(exponent, 1u)) - 11), 0.0, code == 0x7fu);
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let number = chunk_number(row, c);
  let p = paired_runs(weights[number]);
  let q = array<vec4<f32>, 8>(p[0], p[1], p[4], p[5], p[2], p[3], p[6], p[7]);
  let scale = vec2(scale_of(byte(PLANE_1, 2u * number)), scale_of(byte(PLANE_1, 2u * number + 1u)));
  return Chunk(q, scale, vec2(0.0));
}
