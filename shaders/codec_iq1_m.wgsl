// iq1_m: planes {indices: u8[32], high: 32 x 4 bit}, {scales: u16[4]}; `high` = bits 8 to 10 of an index and the
// sign of its delta; two words of `scales` = 4 x {4 scales of 3 bits, a nibble of the f16 d}. As iq1_s, but the packed
// integers have delta, plus or minus one.
fn shifted(at: u32, sign: u32) -> vec2<u32> {  // sign: the highest bit
  let more = ~u32(bitcast<i32>(sign) >> 31u) & (2u * ONES);
  return entry(at) | vec2(more);
}

fn packed_at(row: u32, c: u32) -> Packed {
  let block = block_number(row, c);
  let part = c % 8u;
  let high = words[12u * block + 8u + part / 2u] >> (part % 2u * 16u);
  let top = vec4(high << 8u, high << 4u, high, high >> 4u) & vec4(0x700u);
  let index = unpack4xU8(words[12u * block + part]) | top;
  let a = vec4(shifted(index.x, high << 28u), shifted(index.y, high << 24u));
  let b = vec4(shifted(index.z, high << 20u), shifted(index.w, high << 16u));
  let s = vec2(words[PLANE_1 + 2u * block], words[PLANE_1 + 2u * block + 1u]);
  let nibbles = ((s.x >> 12u) & 0xf000fu) | ((s.y >> 4u) & 0xf000f00u);
  let d = unpack2x16float(nibbles | (nibbles >> 12u)).x;
  let own = select(s.x, s.y, part >= 4u) >> (part / 2u % 2u * 16u + part % 2u * 6u);
  let scale = d * vec2(0.25 * f32(own & 7u) + 0.125, 0.25 * f32((own >> 3u) & 7u) + 0.125);
  return Packed(a, b, scale, vec2(0.0));
}
