// concat: y[t] = a[t], then b[t], which concat_apart or concat_within reads.  grid: (tiles of 64 c of y, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> a: array<f32>;

override C: u32 = 1u;
override A_COLS: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override A_STRIDE: u32 = 0u;
override A_OFFSET: u32 = 0u;
override B_STRIDE: u32 = 0u;
override B_OFFSET: u32 = 0u;

fn joined(row: u32, c: u32) -> f32 {
  if (c < A_COLS) { return a[row * A_STRIDE + A_OFFSET + c]; }
  return b_at(row * B_STRIDE + B_OFFSET + c - A_COLS);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < C) { y[id.y * Y_STRIDE + Y_OFFSET + id.x] = joined(id.y, id.x); }
}
