// norm: normalizes each group of SIZE columns, then * gain + bias. KIND 0, rms: x / sqrt(mean(x^2) + EPS);
// 1, layer: (x - mean) / sqrt(var + EPS); 2, l2: x / max(|x|, EPS).  grid: (groups of a row, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> gain: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;

const LAYER: u32 = 1u;
const L2: u32 = 2u;
override KIND: u32 = 0u;
override SIZE: u32 = 1u;
override GAIN_STEP: u32 = 0u;  // stride of gain between groups; 0 if all groups share it
override HAS_GAIN: bool = false;
override HAS_BIAS: bool = false;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override EPS: f32 = 0.0;

fn normed(v: f32, scale: f32, group: u32, c: u32) -> f32 {
  var out = v * scale;
  if (HAS_GAIN) { out *= gain[group * GAIN_STEP + c]; }
  if (HAS_BIAS) { out += bias[c]; }
  return out;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let start = group.y * X_STRIDE + X_OFFSET + group.x * SIZE;
  let to = group.y * Y_STRIDE + Y_OFFSET + group.x * SIZE;
  var mean = 0.0;
  if (KIND == LAYER) {
    var sum = 0.0;
    for (var c = lane; c < SIZE; c += LANES) { sum += x[start + c]; }
    mean = workgroup_sum(sum, lane) / f32(SIZE);
  }
  var squares = 0.0;
  for (var c = lane; c < SIZE; c += LANES) {
    let v = x[start + c] - mean;
    squares += v * v;
  }
  let total = workgroup_sum(squares, lane);
  var scale = 1.0 / sqrt(total / f32(SIZE) + EPS);
  if (KIND == L2) { scale = select(1.0 / max(sqrt(total), EPS), total, is_nan(total)); }
  for (var c = lane; c < SIZE; c += LANES) { y[to + c] = normed(x[start + c] - mean, scale, group.x, c); }
}
