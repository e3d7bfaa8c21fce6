// gate_plain: a gated unit whose up is a factor.
fn gated(gate: f32, up: f32) -> f32 { return act(gate) * up; }
