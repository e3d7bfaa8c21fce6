// q2_0: planes {q: u8[16]} of 64 pairs of bits, {d: f16}; value = (q - 1) * d.
fn spread_pairs(byte: vec4<u32>) -> vec4<u32> {  // four pairs of bits of each byte, one in each byte of a word
  return (byte | (byte << vec4(6u)) | (byte << vec4(12u)) | (byte << vec4(18u))) & vec4(PAIRS_OF_BITS);
}

fn packed_at(row: u32, c: u32) -> Packed {
  let number = chunk_number(row, c);
  let a = spread_pairs(unpack4xU8(words[2u * number]));
  let d = half_of(PLANE_1, number / 2u, c, 2u);
  return Packed(a, spread_pairs(unpack4xU8(words[2u * number + 1u])), vec2(d), vec2(0.0));
}
