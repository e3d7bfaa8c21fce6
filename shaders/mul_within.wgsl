// mul_within: as mul, where x and r are columns of one buffer, which WebGPU binds once.  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

override C: u32 = 1u;
override EACH: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override R_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  x[id.y * X_STRIDE + X_OFFSET + id.x] *= x[id.y * X_STRIDE + R_OFFSET + id.x / EACH];
}
