// i8: four weights per word; a row is a multiple of 16 bytes.
fn chunk_at(row: u32, c: u32) -> Chunk {
  var q: array<vec4<f32>, 8>;
  for (var i = 0u; i < 2u; i++) {
    if (is_inside(8u * c + 4u * i)) {
      let w = weights[row * (K / 16u) + 2u * c + i];
      for (var j = 0u; j < 4u; j++) { q[4u * i + j] = signed_bytes(w[j]); }
    }
  }
  return Chunk(q, vec2(1.0), vec2(0.0));
}
