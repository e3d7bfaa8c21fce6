// rwkv7_key: the key of a column of RWKV-7, k * (1 + (a - 1) * k_a).
fn rwkv7_key(k: f32, a: f32, k_a: f32) -> f32 { return fma(k * (a - 1.0), k_a, k); }
