// f16: two weights per word. The f16 feature is not needed.
fn pair(word: u32) -> vec2<f32> { return unpack2x16float(word); }

fn chunk_at(row: u32, c: u32) -> Chunk {
  var q: array<vec4<f32>, 8>;
  for (var i = 0u; i < 4u; i++) {
    if (is_inside(8u * c + 2u * i)) {
      let w = weights[row * (K / 8u) + 4u * c + i];
      q[2u * i] = vec4(pair(w.x), pair(w.y));
      q[2u * i + 1u] = vec4(pair(w.z), pair(w.w));
    }
  }
  return Chunk(q, vec2(1.0), vec2(0.0));
}
