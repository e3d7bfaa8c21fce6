// bonus_rwkv7: x = x + v * sum(r * r_k * key), over the columns of each head.  grid: (heads, rows).
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> r: array<f32>;
@group(0) @binding(3) var<storage, read_write> k: array<f32>;
@group(0) @binding(4) var<storage, read_write> v: array<f32>;
@group(0) @binding(5) var<storage, read_write> a: array<f32>;
@group(0) @binding(6) var<storage, read> k_a: array<f32>;
@group(0) @binding(7) var<storage, read> r_k: array<f32>;

override COLS: u32 = 1u;  // of a head
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override R_STRIDE: u32 = 0u;
override R_OFFSET: u32 = 0u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override V_STRIDE: u32 = 0u;
override V_OFFSET: u32 = 0u;
override A_STRIDE: u32 = 0u;
override A_OFFSET: u32 = 0u;

fn product_at(row: u32, c: u32) -> f32 {
  let key = rwkv7_key(k[row * K_STRIDE + K_OFFSET + c], a[row * A_STRIDE + A_OFFSET + c], k_a[c]);
  return r[row * R_STRIDE + R_OFFSET + c] * r_k[c] * key;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let first = group.x * COLS;
  var own = 0.0;
  for (var c = first + lane; c < first + COLS; c += LANES) { own += product_at(row, c); }
  let share = workgroup_sum(own, lane);
  for (var c = first + lane; c < first + COLS; c += LANES) {
    let at = row * X_STRIDE + X_OFFSET + c;
    x[at] = fma(v[row * V_STRIDE + V_OFFSET + c], share, x[at]);
  }
}
