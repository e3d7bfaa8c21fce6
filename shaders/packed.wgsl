// packed: chunks whose weights are bytes, signed or unsigned below 128. A codec defines packed_at(row, c): runs a and
// b, in the bytes of words, which packed_signed or packed_unsigned reads. Fields of the second run that stay in place,
// times 4 or 16, need no shift; a scale of the run that is as many times smaller gives the same bits.
fn chunk_at(row: u32, c: u32) -> Chunk {
  let p = packed_at(row, c);
  let q = array<vec4<f32>, 8>(
    weights4(p.a.x), weights4(p.a.y), weights4(p.a.z), weights4(p.a.w),
    weights4(p.b.x), weights4(p.b.y), weights4(p.b.z), weights4(p.b.w));
  let scale = p.scale * vec2(1.0, unshift());
  if (ZERO != 0) { return Chunk(q, scale, -f32(ZERO) * p.scale); }
  return Chunk(q, scale, p.offset);
}

fn nibbles(w: vec4<u32>, scale: vec2<f32>, offset: vec2<f32>) -> Packed {
  return Packed(w & vec4(NIBBLES), w & vec4(HIGH), scale, offset);
}

fn two_bit_pairs(w: vec4<u32>, scale: vec2<f32>, offset: vec2<f32>) -> Packed {
  return Packed(w & vec4(PAIRS_OF_BITS), w & vec4(NEXT_PAIRS), scale, offset);
}
