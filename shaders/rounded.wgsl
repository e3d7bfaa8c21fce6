// rounded: products of 8-bit integers. x is rounded in blocks of 32 columns to codes times max|x| / 127, the nearest and
// halves to even; a run of 16 codes is the bytes of four words. The integer sum of a chunk is exact. Where weights have a
// zero point, the sum begins with it, once for all weight rows.
override SLICE: u32 = 16u;  // chunks of matvec_q8; a multiple of LANES, and of the chunks of two spans

struct Rounded { codes: vec4<u32>, scale_sum: vec2<f32> }  // a run; its scale, and its sum or -ZERO times its codes' sum
struct Input { a: Rounded, b: Rounded }  // a chunk of a token row

const LEAST: f32 = 1e-30;  // smaller blocks have codes of 0; the reciprocal of their scale may overflow
const WHOLE: f32 = 12582912.0;  // 1.5 * 2^23: a sum with it has the nearest integer in its low bits

fn top_bits(v: vec4<f32>) -> u32 {  // bits of the largest |v|; a NaN is above all numbers
  let bits = bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn scale_of(block: u32) -> vec2<f32> {  // of the block at this vec4 of x; and 1 / scale
  var top = 0u;
  for (var i = 0u; i < 8u; i++) { top = max(top, top_bits(x[block + i])); }
  let largest = bitcast<f32>(top);
  return vec2(largest / 127.0, select(127.0 / largest, 0.0, top < bitcast<u32>(LEAST)));
}

fn rounded4(v: vec4<f32>, inverse: f32) -> u32 {
  let bits = bitcast<vec4<u32>>(fma(v, vec4(inverse), vec4(WHOLE))) & vec4(0xffu);
  return bits.x | (bits.y << 8u) | (bits.z << 16u) | (bits.w << 24u);
}

fn rounded_run(at: u32, scale: vec2<f32>) -> Rounded {  // at this vec4 of x
  let codes = vec4(
    rounded4(x[at], scale.y), rounded4(x[at + 1u], scale.y), rounded4(x[at + 2u], scale.y),
    rounded4(x[at + 3u], scale.y));
  let sum = f32(dot16(codes, vec4(ONES), 0));
  return Rounded(codes, vec2(scale.x, select(scale.x, -ZERO, ZERO != 0.0) * sum));
}

fn dot16(a: vec4<u32>, b: vec4<u32>, sum: i32) -> i32 {
  return dot4I8Packed(a.w, b.w) + (dot4I8Packed(a.z, b.z) + (dot4I8Packed(a.y, b.y) + (dot4I8Packed(a.x, b.x) + sum)));
}

fn zero_sum(v: f32) -> i32 { return select(0, i32(v), ZERO != 0.0); }

fn with_offset(offset: f32, input: f32, sum: f32) -> f32 {
  if (ZERO != 0.0) { return sum; }
  return fma(offset, input, sum);
}

// Runs side by side, SPAN 4, are one block of the weight and one of x.
fn add_packed(p: Packed, input: Input, sum: f32) -> f32 {
  let v = vec2(input.a.scale_sum.y, input.b.scale_sum.y);
  let q = p.b >> vec4(SHIFT);
  if (SPAN == 4u) {
    let a = dot16(p.a, input.a.codes, zero_sum(v.x + v.y));
    let shifted = with_offset(p.offset.x, v.x + v.y, sum);
    return fma(p.scale.x * input.a.scale_sum.x, f32(dot16(q, input.b.codes, a)), shifted);
  }
  let a = f32(dot16(p.a, input.a.codes, zero_sum(v.x)));
  let b = f32(dot16(q, input.b.codes, zero_sum(v.y)));
  let first = fma(p.scale.x * input.a.scale_sum.x, a, with_offset(p.offset.x, v.x, sum));
  return fma(p.scale.y * input.b.scale_sum.x, b, with_offset(p.offset.y, v.y, first));
}
