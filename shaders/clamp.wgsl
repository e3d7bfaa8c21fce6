// clamp: v between -LIMIT and LIMIT, for unary; NaN stays NaN.
override LIMIT: f32 = 1.0;

fn act(v: f32) -> f32 { return select(clamp(v, -LIMIT, LIMIT), v, is_nan(v)); }
