// none: v.
fn act(v: f32) -> f32 { return v; }
