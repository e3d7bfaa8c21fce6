// q8_0: planes {q: i8[32]}, {d: f16}; value = q * d.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let a = weights[2u * block];
  let b = weights[2u * block + 1u];
  let q = array<vec4<f32>, 8>(
    signed_bytes(a.x), signed_bytes(a.y), signed_bytes(a.z), signed_bytes(a.w),
    signed_bytes(b.x), signed_bytes(b.y), signed_bytes(b.z), signed_bytes(b.w));
  return Chunk(q, vec2(half(PLANE_1, block)), vec2(0.0));
}
