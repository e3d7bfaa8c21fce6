// emit: floats[o] = x[o]; the result of an output is id 0, status 1 if a float is NaN, logit 0 and log-sum-exp 0.
// grid: one workgroup per output.
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@group(0) @binding(3) var<storage, read_write> floats: array<f32>;

override C: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.x * X_STRIDE + X_OFFSET;
  var n_nan = 0.0;
  for (var c = lane; c < C; c += LANES) {
    let value = x[at + c];
    floats[group.x * C + c] = value;
    n_nan += select(0.0, 1.0, is_nan(value));
  }
  let has_nan = workgroup_sum(n_nan, lane) > 0.0;
  if (lane < 4u) { result[4u * group.x + lane] = select(0u, 1u, lane == 1u && has_nan); }
}
