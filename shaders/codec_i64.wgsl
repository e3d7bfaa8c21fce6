// i64: a weight is two words, the lower one first. The magnitude is converted, so that small numbers are exact.
fn number(low: u32, high: u32) -> f32 {
  let is_negative = high >= 0x80000000u;
  let a = select(low, ~low + 1u, is_negative);
  let b = select(high, ~high + u32(low == 0u), is_negative);
  let size = f32(b) * 4294967296.0 + f32(a);
  return select(size, -size, is_negative);
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  var q: array<vec4<f32>, 8>;
  for (var i = 0u; i < 8u; i++) {
    if (is_inside(8u * c + i)) {
      let at = row * (K / 2u) + 16u * c + 2u * i;
      let a = weights[at];
      let b = weights[at + 1u];
      q[i] = vec4(number(a.x, a.y), number(a.z, a.w), number(b.x, b.y), number(b.z, b.w));
    }
  }
  return Chunk(q, vec2(1.0), vec2(0.0));
}
