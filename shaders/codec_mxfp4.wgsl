// mxfp4: planes {q: u8[16]}, {e: E8M0}; value = 2^(e - 128) * book[q], whose values are doubled.
fn coded_at(row: u32, c: u32) -> Coded {
  let block = chunk_number(row, c);
  let e = byte(PLANE_1, block);
  let scale = bitcast<f32>(select(0x00200000u << e, (e - 1u) << 23u, e >= 2u));  // below 2: subnormal, 0 on some GPUs
  return Coded(weights[block], vec2(scale));
}
