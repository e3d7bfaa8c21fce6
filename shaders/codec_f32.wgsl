// f32: one weight per word.
fn four(at: u32) -> vec4<f32> { return bitcast<vec4<f32>>(weights[at]); }

fn chunk_at(row: u32, c: u32) -> Chunk {
  var q: array<vec4<f32>, 8>;
  for (var i = 0u; i < 8u; i++) {
    if (is_inside(8u * c + i)) { q[i] = four(row * (K / 4u) + 8u * c + i); }
  }
  return Chunk(q, vec2(1.0), vec2(0.0));
}
