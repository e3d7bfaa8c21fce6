// norm: y[t, c] = x[t, c] * gain[c] / sqrt(mean_c(x^2) + EPS).  grid: one workgroup a row.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> gain: array<f32>;

override C: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override EPS: f32 = 0.0;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let start = group.x * X_STRIDE + X_OFFSET;
  let to = group.x * Y_STRIDE + Y_OFFSET;
  var squares = 0.0;
  for (var c = lane; c < C; c += LANES) { squares += x[start + c] * x[start + c]; }
  let scale = 1.0 / sqrt(workgroup_sum(squares, lane) / f32(C) + EPS);
  for (var c = lane; c < C; c += LANES) { y[to + c] = x[start + c] * scale * gain[c]; }
}
