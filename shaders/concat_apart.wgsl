// concat_apart: b of concat in a buffer of its own.
@group(0) @binding(3) var<storage, read_write> b: array<f32>;

fn b_at(i: u32) -> f32 { return b[i]; }
