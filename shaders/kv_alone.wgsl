// kv_alone: keys that kv_write stores without values (latent attention).
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;

override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;

fn given(_is_key: bool, row: u32, c: u32) -> f32 { return k[row * K_STRIDE + K_OFFSET + c]; }

fn put(_is_key: bool, at: u32, word: u32) { keys[at] = word; }
