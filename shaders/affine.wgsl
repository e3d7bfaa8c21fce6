// affine: y[t, c] = weight[c * STEP] * x[t, c] + bias[c].  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;

override C: u32 = 1u;
override STEP: u32 = 1u; // 0: a weight of one number
override HAS_BIAS: bool = false;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let value = x[id.y * X_STRIDE + X_OFFSET + id.x];
  let factor = weight[id.x * STEP];
  var out = factor * value;
  if (HAS_BIAS) { out = fma(factor, value, bias[id.x]); }
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = out;
}
