// mix: y[t, i] = sum over j of coefs[t, i, j] * x[t, j], where y[t, i] and x[t, j] are groups of SIZE columns, in order.
// grid: (tiles of 64 columns of y, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> coefs: array<f32>;

override C: u32 = 1u;  // columns of y
override SIZE: u32 = 1u;
override GROUPS: u32 = 1u;  // of x
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override COEFS_STRIDE: u32 = 0u;
override COEFS_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let from_x = id.y * X_STRIDE + X_OFFSET + id.x % SIZE;
  let from_coefs = id.y * COEFS_STRIDE + COEFS_OFFSET + id.x / SIZE * GROUPS;
  var sum = 0.0;
  for (var j = 0u; j < GROUPS; j++) { sum = fma(coefs[from_coefs + j], x[from_x + j * SIZE], sum); }
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = sum;
}
