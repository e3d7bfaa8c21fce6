// concat_within: b of concat in the buffer of a, which WebGPU binds once.
fn b_at(i: u32) -> f32 { return a[i]; }
