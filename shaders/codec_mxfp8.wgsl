// mxfp8: planes {q: E4M3[32]}, {e: E8M0}; value = 2^(e - 128) * (2 * q). The exponent of f32 is 120 higher than E4M3's.
const NOT_A_NUMBER: u32 = 0x7fc00000u;

fn doubled(word: u32) -> vec4<f32> {
  let q = unpack4xU8(word);
  let magnitude = bitcast<vec4<u32>>(bitcast<vec4<f32>>((q & vec4(0x7fu)) << vec4(20u)) * 0x1p121);
  let number = select(magnitude, vec4(NOT_A_NUMBER), (q & vec4(0x7fu)) == vec4(0x7fu));
  return bitcast<vec4<f32>>(number | ((q & vec4(0x80u)) << vec4(24u)));
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let a = weights[2u * block];
  let b = weights[2u * block + 1u];
  let e = byte(PLANE_1, block);
  let scale = bitcast<f32>(select(0x00200000u << e, (e - 1u) << 23u, e >= 2u));  // below 2: subnormal
  let q = array<vec4<f32>, 8>(
    doubled(a.x), doubled(a.y), doubled(a.z), doubled(a.w), doubled(b.x), doubled(b.y), doubled(b.z), doubled(b.w));
  return Chunk(q, vec2(scale), vec2(0.0));
}
