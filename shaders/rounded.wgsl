// rounded: products of 8-bit integers. x is rounded in blocks of 32 columns to codes times max|x| / 127, the nearest,
// halves to even; a run of 16 codes is the bytes of four words. The integer sum of a chunk is exact; it begins with the
// zero point of the weights times the codes, once for all weight rows.
override SLICE: u32 = 16u;  // chunks of matvec_q8; a multiple of LANES, and of the chunks of two spans

// A run: its scale, and the bits of its sum or, as an integer, of -ZERO times the sum of its codes.
struct Rounded { codes: vec4<u32>, scale: f32, sum: u32 }
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

// The columns that word i of a run of weights multiplies; x_at: a token row. A word of pairs.wgsl has two columns, and
// the two that are PAIR vec4 after them.
fn four_of(x_at: u32, run: u32, i: u32) -> vec4<f32> {
  if (PAIR == 0u) { return x[x_at + 4u * run + i]; }
  let at = x_at + run / 2u * 8u + run % 2u * select(4u, 2u, PAIR == 4u) + i / 2u;
  let a = x[at];
  let b = x[at + PAIR];
  return select(vec4(a.zw, b.zw), vec4(a.xy, b.xy), i % 2u == 0u);
}

fn rounded_run(x_at: u32, run: u32, scale: vec2<f32>) -> Rounded {
  let codes = vec4(
    rounded4(four_of(x_at, run, 0u), scale.y), rounded4(four_of(x_at, run, 1u), scale.y),
    rounded4(four_of(x_at, run, 2u), scale.y), rounded4(four_of(x_at, run, 3u), scale.y));
  let sum = dot16(codes, vec4(ONES), 0);
  return Rounded(codes, scale.x, select(bitcast<u32>(scale.x * f32(sum)), u32(-ZERO * sum), ZERO != 0));
}

fn dot16(a: vec4<u32>, b: vec4<u32>, sum: i32) -> i32 {
  return dot4I8Packed(a.w, b.w) + (dot4I8Packed(a.z, b.z) + (dot4I8Packed(a.y, b.y) + (dot4I8Packed(a.x, b.x) + sum)));
}

fn zero_sum(sum: u32) -> i32 { return select(0, i32(sum), ZERO != 0); }

fn add_packed(p: Packed, input: Input, sum: f32) -> f32 {
  let v = bitcast<vec2<f32>>(vec2(input.a.sum, input.b.sum));
  let q = p.b >> vec4(SHIFT);
  if (SCALES == 1u) {
    let a = dot16(p.a, input.a.codes, zero_sum(input.a.sum + input.b.sum));
    let shifted = with_offset(p.offset.x, v.x + v.y, sum);
    return fma(p.scale.x * input.a.scale, f32(dot16(q, input.b.codes, a)), shifted);
  }
  let a = f32(dot16(p.a, input.a.codes, zero_sum(input.a.sum)));
  let b = f32(dot16(q, input.b.codes, zero_sum(input.b.sum)));
  let first = fma(p.scale.x * input.a.scale, a, with_offset(p.offset.x, v.x, sum));
  return fma(p.scale.y * input.b.scale, b, with_offset(p.offset.y, v.y, first));
}
