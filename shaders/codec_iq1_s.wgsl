// iq1_s: planes {indices: u8[32], high: u16[8]}, {d: f16}; `high` = bits 8 to 10 of 4 indices, 3 bits of scale,
// the sign of delta; value = (d * (2 * scale + 1)) * (entry + delta). The codebook has 8 * (entry + 1).
fn packed_at(row: u32, c: u32) -> Packed {
  let at = block_number(row, c) * 12u;
  let part = c % 8u;
  let high = words[at + 8u + part / 2u] >> (part % 2u * 16u);
  let top = vec4(high << 8u, high << 5u, high << 2u, high >> 1u) & vec4(0x700u);
  let index = unpack4xU8(words[at + part]) | top;
  let a = vec4(entry(index.x), entry(index.y));
  let b = vec4(entry(index.z), entry(index.w));
  let scale = half_of(PLANE_1, block_number(row, c), c, 8u) * (0.25 * f32((high >> 12u) & 7u) + 0.125);
  let offset = select(-7.0, -9.0, (high & 0x8000u) != 0u);
  return Packed(a, b, vec2(scale), vec2(scale * offset));
}
