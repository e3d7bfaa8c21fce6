// gelu_erf: v * (1 + erf(v / sqrt(2))) / 2; absolute error of erf at most 1.5e-7
// (Abramowitz and Stegun, 7.1.26).
fn act(v: f32) -> f32 {
  // Beyond 8, erf(x) = 1 in float32; the limit keeps x * x finite.
  let x = min(abs(v) * 0.7071067811865476, 8.0);
  let t = 1.0 / (1.0 + 0.3275911 * x);
  let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  let erfc = poly * exp(-x * x);  // 1 - erf(x)
  return 0.5 * v * select(2.0 - erfc, erfc, v < 0.0);
}
