// combine: y[t, c] = sum over slots of probs[t, slot] * x[t, slot, c].  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> probs: array<f32>;

override C: u32 = 1u;
override SLOTS: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override PROBS_STRIDE: u32 = 0u;
override PROBS_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let at = id.y * X_STRIDE + X_OFFSET + id.x;
  let probs_at = id.y * PROBS_STRIDE + PROBS_OFFSET;
  var sum = 0.0;
  for (var slot = 0u; slot < SLOTS; slot++) { sum += probs[probs_at + slot] * x[at + slot * C]; }
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = sum;
}
