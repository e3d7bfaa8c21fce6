// nvfp4: planes {q: u8[32]}, {scales: UE4M3[4]}; 8 bytes have 16 weights, the low nibbles first.
fn e4m3(code: u32) -> f32 {  // half of E4M3 in the low 7 bits; 0x7f, NaN in E4M3, is 0
  let exponent = (code >> 3u) & 15u;
  let whole = f32((code & 7u) + select(0u, 8u, exponent > 0u));
  return select(ldexp(whole, i32(max(exponent, 1u)) - 11), 0.0, code == 0x7fu);
}

fn coded_at(row: u32, c: u32) -> Coded {
  let codes = words[PLANE_1 + row * (K / 64u) + c / 2u] >> (c % 2u * 16u);
  return Coded(weights[chunk_number(row, c)], vec2(e4m3(codes & 0xffu), e4m3((codes >> 8u) & 0xffu)));
}
