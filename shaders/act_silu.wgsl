// silu: v * sigmoid(v). exp is kept finite: what overflows may be anything in WGSL.
fn act(v: f32) -> f32 { return v / (1.0 + exp(min(-v, 80.0))); }
