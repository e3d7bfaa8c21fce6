// norm_rope_alone: no write to the KV cache.
@group(0) @binding(5) var<storage, read> k_gain: array<f32>;

fn store_pair(row: u32, column: u32, values: vec2<f32>) {}
