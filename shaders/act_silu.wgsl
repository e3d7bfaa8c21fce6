// silu: x * sigmoid(x).
fn act(v: f32) -> f32 { return v / (1.0 + exp(-v)); }
