// gate_plain: gated unit act(gate) times up, for any activation.
fn gated(gate: f32, up: f32) -> f32 { return act(gate) * up; }
