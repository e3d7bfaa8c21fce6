// add_norm: x[t] += SCALE * r[t]; y[t, c] = x[t, c] * gain[c] / sqrt(mean_c(x^2) + EPS).
// grid: one workgroup per row.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> r: array<f32>;
@group(0) @binding(4) var<storage, read> gain: array<f32>;

override C: u32 = 1u;
override SCALE: f32 = 1.0;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override R_STRIDE: u32 = 0u;
override R_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override EPS: f32 = 0.0;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.x * X_STRIDE + X_OFFSET;
  let start = group.x * R_STRIDE + R_OFFSET;
  let to = group.x * Y_STRIDE + Y_OFFSET;
  var squares = 0.0;
  for (var c = lane; c < C; c += LANES) {
    let sum = x[at + c] + SCALE * r[start + c];
    x[at + c] = sum;
    squares += sum * sum;
  }
  let scale = 1.0 / sqrt(workgroup_sum(squares, lane) / f32(C) + EPS);
  for (var c = lane; c < C; c += LANES) { y[to + c] = x[at + c] * scale * gain[c]; }
}
