// sigmoid: 1 / (1 + exp(-v)). The argument of exp is clamped against overflow; NaN stays NaN.
fn act(v: f32) -> f32 { return select(1.0 / (1.0 + exp(min(-v, 80.0))), v, is_nan(v)); }
