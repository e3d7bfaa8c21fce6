// relu2: max(v, 0) squared; NaN stays NaN.
fn act(v: f32) -> f32 {
  let positive = select(max(v, 0.0), v, is_nan(v));
  return positive * positive;
}
