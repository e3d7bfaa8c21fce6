// f64: a weight is two words, the lower one first, rounded to the nearest f32, ties to even. Magnitudes below
// f32's normal numbers become zero, those beyond its largest infinite.
fn number(low: u32, high: u32) -> f32 {
  let sign = high & 0x80000000u;
  let exponent = (high >> 20u) & 0x7ffu;
  let mantissa = ((high & 0xfffffu) << 3u) | (low >> 29u);
  if (exponent == 0x7ffu) {
    let is_infinite = (high & 0xfffffu) == 0u && low == 0u;
    return bitcast<f32>(sign | select(0x7fc00000u, 0x7f800000u, is_infinite));
  }
  if (exponent <= 896u) { return bitcast<f32>(sign); }
  if (exponent >= 1151u) { return bitcast<f32>(sign | 0x7f800000u); }
  let rest = (low & 0x1fffffffu) + 0x0fffffffu + (mantissa & 1u);  // carries into bit 29 when it rounds up
  return bitcast<f32>(sign | ((((exponent - 896u) << 23u) | mantissa) + (rest >> 29u)));
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
