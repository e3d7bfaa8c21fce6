// scale: BY * v, for unary.
override BY: f32 = 1.0;

fn act(v: f32) -> f32 { return BY * v; }
