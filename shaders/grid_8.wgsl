// grid_8: entries of 8 signed bytes in the codebook, which follows the planes.
override BOOK: u32 = 0u;

fn flipped(word: u32, signs: u32) -> vec4<f32> {  // bits 0 to 3 of signs
  let v = signed_bytes(word);
  return select(v, -v, (vec4(signs) & vec4(1u, 2u, 4u, 8u)) != vec4(0u));
}

fn entries(at: vec4<u32>, signs: vec4<u32>) -> array<vec4<f32>, 8> {
  var q: array<vec4<f32>, 8>;
  for (var i = 0u; i < 4u; i++) {
    q[2u * i] = flipped(words[BOOK + 2u * at[i]], signs[i]);
    q[2u * i + 1u] = flipped(words[BOOK + 2u * at[i] + 1u], signs[i] >> 4u);
  }
  return q;
}
