// quants: fields of blocks as floats, for codecs. NIBBLES selects the low nibble of each byte, HIGH the high one.
const NIBBLES: u32 = 0x0f0f0f0fu;
const HIGH: u32 = 0xf0f0f0f0u;
const PAIRS_OF_BITS: u32 = 0x03030303u;
const NEXT_PAIRS: u32 = 0x0c0c0c0cu;
const ONES: u32 = 0x01010101u;
const EACH_BIT: u32 = 0x204081u;  // times seven bits: bits 0 to 3 in four bytes, bits 4 to 6 four places higher

override PLANE_1: u32 = 0u;  // word offsets of the fields after the first
override PLANE_2: u32 = 0u;

// The f16 of a block of n chunks that has chunk c. In rows of an even number of blocks, c alone selects it in its word.
fn half_of(plane: u32, block: u32, c: u32, n: u32) -> f32 {
  return select_half(words[plane + block / 2u], select(block, c / n, K % (64u * n) == 0u));
}

fn select_half(word: u32, i: u32) -> f32 {
  return unpack2x16float(word >> (16u * (i % 2u))).x;
}

fn byte(plane: u32, i: u32) -> u32 { return (words[plane + i / 4u] >> (8u * (i % 4u))) & 0xffu; }

fn bytes(word: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(word)); }

fn signed_bytes(word: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(word)); }

// Two scales of 4 bits, (s + 0.5) / 4.
fn quarters(bits: u32) -> vec2<f32> { return 0.25 * vec2(f32(bits & 15u), f32((bits >> 4u) & 15u)) + 0.125; }

// Four bits, one in each byte.
fn spread(bits: u32) -> u32 { return (bits * EACH_BIT) & ONES; }

fn spread_words(bits: u32) -> vec4<u32> {  // 16 bits in the bytes of four words
  return vec4(spread(bits & 15u), spread((bits >> 4u) & 15u), spread((bits >> 8u) & 15u), spread((bits >> 12u) & 15u));
}
