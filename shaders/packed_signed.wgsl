// packed_signed: as packed, of signed bytes.
struct Packed { a: vec4<u32>, b: vec4<u32>, scale: vec2<f32>, offset: vec2<f32> }

fn chunk_at(row: u32, c: u32) -> Chunk {
  let p = packed_at(row, c);
  let q = array<vec4<f32>, 8>(
    signed_bytes(p.a.x), signed_bytes(p.a.y), signed_bytes(p.a.z), signed_bytes(p.a.w),
    signed_bytes(p.b.x), signed_bytes(p.b.y), signed_bytes(p.b.z), signed_bytes(p.b.w));
  return Chunk(q, p.scale, p.offset);
}
