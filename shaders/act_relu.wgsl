// relu: max(v, 0); NaN stays NaN.
fn act(v: f32) -> f32 { return select(max(v, 0.0), v, is_nan(v)); }
