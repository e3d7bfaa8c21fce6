// rounded: products of 8-bit integers. x is rounded in blocks of 32 columns to codes times max|x| / 127, the nearest and
// halves to even, and a run of 16 codes is the bytes of four words. A chunk's integer sums are exact.
override SLICE: u32 = 16u;  // chunks of matvec_q8; a multiple of LANES, and of the chunks of two spans
override SHIFT: u32 = 0u;  // the second run of a packed chunk is 2^SHIFT times its weights

struct Rounded { codes: vec4<u32>, affine: vec2<f32> }  // a run; its scale and its sum
struct Input { a: Rounded, b: Rounded }  // a chunk of a token row

const LEAST: f32 = 1e-30;  // smaller blocks have codes of 0; the reciprocal of their scale may overflow

fn top_bits(v: vec4<f32>) -> u32 {  // those of the largest size; a NaN is above all numbers
  let bits = bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn rounded_run(x_at: u32, run: u32) -> Rounded {
  let block = x_at + run / 2u * 8u;
  var top = 0u;
  for (var i = 0u; i < 8u; i++) { top = max(top, top_bits(x[block + i])); }
  let scale = bitcast<f32>(top) / 127.0;
  let inverse = select(127.0 / bitcast<f32>(top), 0.0, top < bitcast<u32>(LEAST));
  var codes: vec4<u32>;
  var sum = 0;
  for (var i = 0u; i < 4u; i++) {
    codes[i] = pack4xI8(vec4<i32>(round(x[x_at + 4u * run + i] * inverse)));
    sum += dot4I8Packed(codes[i], ONES);
  }
  return Rounded(codes, vec2(scale, scale * f32(sum)));
}

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

fn first_run(c: u32) -> u32 { return column_of(c, 0u) / 4u; }

fn second_run(c: u32) -> u32 { return column_of(c, 4u) / 4u; }

// Runs side by side, SPAN 4, are one block of the weight and one of x.
fn add_packed(p: Packed, input: Input, sum: f32) -> f32 {
  let a = dot16(p.a, input.a.codes);
  let b = dot16(p.b >> vec4(SHIFT), input.b.codes);
  if (SPAN == 4u) {
    let shifted = fma(p.offset.x, input.a.affine.y + input.b.affine.y, sum);
    return fma(p.scale.x * input.a.affine.x, f32(a + b), shifted);
  }
  let first = fma(p.scale.x * input.a.affine.x, f32(a), fma(p.offset.x, input.a.affine.y, sum));
  let scale = p.scale.y * f32(1u << SHIFT) * input.b.affine.x;
  return fma(scale, f32(b), fma(p.offset.y, input.b.affine.y, first));
}
