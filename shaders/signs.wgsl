// signs: packed weights of codebooks of magnitudes below 64. A byte of the codebook is 127 - magnitude, a packed weight
// 64 + value: flipping the bits of 63 gives 64 + magnitude, flipping those of 64 and adding one 64 - magnitude; no byte
// carries into the next. Signs are the lowest bits of the bytes of a word, whose other bits do not matter.
const FLIP: u32 = 0x3f3f3f3fu;

fn with_signs(entry: vec2<u32>, signs: vec2<u32>) -> vec2<u32> {
  let negative = signs & vec2(ONES);
  return (entry ^ (negative + vec2(FLIP))) + negative;
}

// Signs of eight weights from seven bits of a word, and one that makes the number of negative weights even.
fn even_signs(word: u32, at: u32) -> vec2<u32> {
  let seven = (word >> at) & 127u;
  let signs = (seven * EACH_BIT) | (countOneBits(seven) << 28u);
  return vec2(signs, signs >> 4u);
}

fn byte_signs(word: u32, at: u32) -> vec2<u32> {
  return ((vec2(word) >> vec2(at, at + 4u)) & vec2(15u)) * vec2(EACH_BIT);
}
