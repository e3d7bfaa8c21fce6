// affine8: planes {q: u8[32]}, {d: f16, m: f16}; value = d * q + m. As signed bytes, codes are less 128, and the minimum
// is raised by as much; chunk_at has the exact values.
fn dm_of(block: u32) -> vec2<f32> { return unpack2x16float(words[PLANE_1 + block]); }

fn chunk_at(row: u32, c: u32) -> Chunk {
  let block = chunk_number(row, c);
  let a = weights[2u * block];
  let b = weights[2u * block + 1u];
  let q = array<vec4<f32>, 8>(
    bytes(a.x), bytes(a.y), bytes(a.z), bytes(a.w), bytes(b.x), bytes(b.y), bytes(b.z), bytes(b.w));
  return Chunk(q, dm_of(block).xx, dm_of(block).yy);
}

fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  let dm = dm_of(block);
  let flip = vec4(0x80808080u);
  return Packed(weights[2u * block] ^ flip, weights[2u * block + 1u] ^ flip, dm.xx, vec2(fma(dm.x, 128.0, dm.y)));
}
