// affine2, affine3, affine6: planes {q: u8[4 * BITS]}, a stream of codes, lowest bits first, {d: f16, m: f16};
// value = d * q + m.
override BITS: u32 = 2u;

fn four_at(block: u32, i: u32) -> u32 {  // codes 4 * i to 4 * i + 3, adjacent in the low bits
  let at = BITS * block + BITS * i / 8u;
  let up = 4u * BITS * i % 32u;
  let low = words[at] >> up;
  if (up + 4u * BITS <= 32u) { return low; }
  return low | (words[at + 1u] << (32u - up));
}

fn spread_codes(four: u32) -> u32 {  // one in each byte
  let mask = (1u << BITS) - 1u;
  return (four & mask) | ((four & (mask << BITS)) << (8u - BITS)) | ((four & (mask << (2u * BITS))) << (16u - 2u * BITS))
    | ((four & (mask << (3u * BITS))) << (24u - 3u * BITS));
}

fn run_at(block: u32, first: u32) -> vec4<u32> {  // of 16 weights
  return vec4(spread_codes(four_at(block, first)), spread_codes(four_at(block, first + 1u)),
    spread_codes(four_at(block, first + 2u)), spread_codes(four_at(block, first + 3u)));
}

fn packed_at(row: u32, c: u32) -> Packed {
  let block = chunk_number(row, c);
  let dm = unpack2x16float(words[PLANE_1 + block]);
  return Packed(run_at(block, 0u), run_at(block, 4u), dm.xx, dm.yy);
}
