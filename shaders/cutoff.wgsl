// cutoff: x[t, c] = max(x[t, c] - mean - DEVIATIONS * deviation, 0), with the mean and the standard deviation of the row.
// grid: one workgroup per row.
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

override C: u32 = 1u;
override DEVIATIONS: f32 = 0.0;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.x * X_STRIDE + X_OFFSET;
  var sum = 0.0;
  for (var c = lane; c < C; c += LANES) { sum += x[at + c]; }
  let mean = workgroup_sum(sum, lane) / f32(C);
  var squares = 0.0;
  for (var c = lane; c < C; c += LANES) {
    let off = x[at + c] - mean;
    squares = fma(off, off, squares);
  }
  let deviation = sqrt(workgroup_sum(squares, lane) / f32(C));
  for (var c = lane; c < C; c += LANES) {
    let above = fma(-DEVIATIONS, deviation, x[at + c] - mean);
    x[at + c] = select(max(above, 0.0), above, is_nan(above));
  }
}
