// gather_rows: y[o] = x[outputs[o].row].  grid: (tiles of 64 c, outputs).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

override C: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let row = step[output_at(id.y)];
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = x[row * X_STRIDE + X_OFFSET + id.x];
}
