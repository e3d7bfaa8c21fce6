// scales_k: the 6-bit scales and minimums of q4_k and q5_k, of groups 2 * pair and 2 * pair + 1. `header` is
// {d: f16, dmin: f16, scales: u8[12]}.
struct Scales { scale: vec2<f32>, minimum: vec2<f32> }

fn scales_of(header: vec4<u32>, pair: u32) -> Scales {
  let w = header.yzw >> vec3(pair % 2u * 16u);
  let low = vec2(w.x & 0x3f3fu, w.y & 0x3f3fu);
  let high = vec2((w.z & 0x0f0fu) | ((w.x >> 2u) & 0x3030u), ((w.z >> 4u) & 0x0f0fu) | ((w.y >> 2u) & 0x3030u));
  let both = select(low, high, pair >= 2u);
  let d = unpack2x16float(header.x);
  return Scales(
    d.x * vec2(f32(both.x & 0xffu), f32(both.x >> 8u)), -d.y * vec2(f32(both.y & 0xffu), f32(both.y >> 8u)));
}
