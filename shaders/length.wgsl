// length: y[t, g] = sqrt(sum of squares) of each group g of SIZE columns of x.  grid: (groups of a row, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

override SIZE: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.y * X_STRIDE + X_OFFSET + group.x * SIZE;
  var squares = 0.0;
  for (var c = lane; c < SIZE; c += LANES) { squares = fma(x[at + c], x[at + c], squares); }
  let total = workgroup_sum(squares, lane);
  if (lane == 0u) { y[group.y * Y_STRIDE + Y_OFFSET + group.x] = sqrt(total); }
}
