// grid_4: entries of 4 signed bytes in the codebook, which follows the planes. Two entries share 8 signs.
override BOOK: u32 = 0u;

fn flipped(word: u32, signs: u32) -> vec4<f32> {  // bits 0 to 3 of signs
  let v = signed_bytes(word);
  return select(v, -v, (vec4(signs) & vec4(1u, 2u, 4u, 8u)) != vec4(0u));
}

fn entries(low: vec4<u32>, high: vec4<u32>, signs: vec4<u32>) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    flipped(words[BOOK + low.x], signs.x), flipped(words[BOOK + low.y], signs.x >> 4u),
    flipped(words[BOOK + low.z], signs.y), flipped(words[BOOK + low.w], signs.y >> 4u),
    flipped(words[BOOK + high.x], signs.z), flipped(words[BOOK + high.y], signs.z >> 4u),
    flipped(words[BOOK + high.z], signs.w), flipped(words[BOOK + high.w], signs.w >> 4u));
}
