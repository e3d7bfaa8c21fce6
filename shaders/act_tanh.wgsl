// tanh: see smooth_tanh.
fn act(v: f32) -> f32 { return smooth_tanh(v); }
