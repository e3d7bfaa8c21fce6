// kv_both: keys and values that kv_write stores.
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;

override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override V_STRIDE: u32 = 0u;
override V_OFFSET: u32 = 0u;

fn given(is_key: bool, row: u32, c: u32) -> f32 {
  if (is_key) { return k[row * K_STRIDE + K_OFFSET + c]; }
  return v[row * V_STRIDE + V_OFFSET + c];
}

fn put(is_key: bool, at: u32, word: u32) {
  if (is_key) { keys[at] = word; } else { values[at] = word; }
}
