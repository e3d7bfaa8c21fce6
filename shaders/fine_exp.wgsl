// fine_exp: exp in all digits of f32, since errors of a decay add up over the rows of a sequence; WGSL allows exp
// larger ones. NaN stays NaN.
fn fine_exp(v: f32) -> f32 {
  let x = clamp(v, -87.0, 88.0);
  let n = round(x * 1.4426950408889634);
  let r = fma(n, -1.4286068203094173e-6, fma(n, -0.693145751953125, x));  // x - n * log(2), in two parts
  let high = fma(r, fma(r, fma(r, 1.0 / 5040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0);
  let power = fma(r, fma(r, fma(r, fma(r, high, 1.0 / 6.0), 0.5), 1.0), 1.0);
  if ((bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u) { return v; }
  return power * bitcast<f32>(u32(i32(n) + 127) << 23u);
}
