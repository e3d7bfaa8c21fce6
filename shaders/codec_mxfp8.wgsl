// mxfp8: planes {q: E4M3[32]}, {e: E8M0}; value = 2^(e - 128) * (2 * q). The exponent of f32 is 120 higher than E4M3's.
// A device may take subnormal f32 as 0: codes below 8 are counts, not bits, and for e below 2 numbers are a quarter and
// the power is 4 times as high.
const NOT_A_NUMBER: u32 = 0x7fc00000u;

fn doubled(word: u32, part: f32) -> vec4<f32> {
  let q = unpack4xU8(word);
  let size = q & vec4(0x7fu);
  let normal = bitcast<vec4<f32>>(size << vec4(20u)) * 0x1p121;
  let magnitude = bitcast<vec4<u32>>(part * select(normal, vec4<f32>(size) * 0x1p-8, size < vec4(8u)));
  let number = select(magnitude, vec4(NOT_A_NUMBER), size == vec4(0x7fu));
  return bitcast<vec4<f32>>(number | ((q & vec4(0x80u)) << vec4(24u)));
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let a = weights[2u * block];
  let b = weights[2u * block + 1u];
  let e = byte(PLANE_1, block);
  let scale = bitcast<f32>(select(e + 1u, e - 1u, e >= 2u) << 23u);
  let part = select(0.25, 1.0, e >= 2u);
  let q = array<vec4<f32>, 8>(
    doubled(a.x, part), doubled(a.y, part), doubled(a.z, part), doubled(a.w, part),
    doubled(b.x, part), doubled(b.y, part), doubled(b.z, part), doubled(b.w, part));
  return Chunk(q, vec2(scale), vec2(0.0));
}
