// product: parts of matvec and matmul. A row's sum has one order: lane l of LANES takes chunks l, l + LANES, ...,
// a chunk adds run by run, and lanes are added in order. Each fma is explicit, so that the bits of a row depend
// neither on the kernel nor on a driver's contractions. Four outputs form a quad: an op defines quad_rows(quad), the
// weight rows of their sums, and finish(row, quad, sums, scale) for a token row of the step; a deferred norm scales the
// sums.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> words: array<u32>;

const TILES_X: u32 = 32768u;  // a grid dimension has at most 65,535 workgroups; further tiles use z
override LANES: u32 = 16u;
override TOKENS: u32 = 1u;  // token rows of a workgroup
override ROWS_WORD: u32 = 0u;
override K: u32 = 8u;
override N: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

fn x_of(x_at: u32, c: u32, i: u32) -> vec4<f32> {  // of chunk c; x_at: a token row, in vec4
  let column = column_of(c, i);
  if (!is_inside(column)) { return vec4<f32>(); }
  return x[x_at + column];
}

fn fma4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// The start of the products of both runs: the zero point of their weights times the sums of x. Where runs share the
// scale, the products of the first run start with those of the second, unshifted.
fn starts_of(sums: vec2<f32>) -> vec2<f32> {
  if (ZERO == 0) { return vec2<f32>(); }
  let second = -f32(ZERO << SHIFT);
  if (SCALES == 1u) { return vec2(0.0, second * (sums.x + sums.y)); }
  return vec2(-f32(ZERO), second) * sums;
}

fn with_offset(offset: f32, input: f32, sum: f32) -> f32 {
  if (ZERO != 0) { return sum; }
  return fma(offset, input, sum);
}

fn sum_of(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> f32 {
  let v = a + b + c + d;
  return v.x + v.y + v.z + v.w;
}
