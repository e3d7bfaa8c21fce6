// silu: v * sigmoid(v). The argument of exp is clamped: overflow gives an undefined value in WGSL.
fn act(v: f32) -> f32 { return v / (1.0 + exp(min(-v, 80.0))); }
