// softcap: CAP * tanh(v / CAP), for unary.
override CAP: f32 = 1.0;

fn act(v: f32) -> f32 { return CAP * smooth_tanh(v / CAP); }
