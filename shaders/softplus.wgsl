// softplus: log(1 + exp(v)), where log(1 + e) = 2 * atanh(e / (2 + e)); NaN stays NaN.
fn softplus(v: f32) -> f32 {
  let e = fine_exp(-abs(v));
  let s = e / (2.0 + e);
  let q = s * s;  // at most 1/9
  let tail = fma(q, fma(q, fma(q, 1.0 / 15.0, 1.0 / 13.0), 1.0 / 11.0), 1.0 / 9.0);
  let series = fma(q, fma(q, fma(q, fma(q, tail, 1.0 / 7.0), 0.2), 1.0 / 3.0), 1.0);
  return select(fma(2.0 * s, series, max(v, 0.0)), v, is_nan(v));
}
