// linear_narrow: y[t, n] = weight[n] @ x[t] + bias[n] for rows of few weights, which need not start at 16 bytes. A lane adds
// a row in order.  grid: (tiles of 64 n, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<u32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;

const F32: u32 = 0u;
const BF16: u32 = 2u;
override TYPE: u32 = 0u;
override K: u32 = 1u;
override N: u32 = 1u;
override HAS_BIAS: bool = false;
override FIRST_ROW: u32 = 0u;  // of this piece of the weight
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

fn weight_at(i: u32) -> f32 {
  if (TYPE == F32) { return bitcast<f32>(weights[i]); }
  let bits = (weights[i / 2u] >> (16u * (i % 2u))) & 0xffffu;
  if (TYPE == BF16) { return bitcast<f32>(bits << 16u); }
  return unpack2x16float(bits).x;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= N) { return; }
  var sum = 0.0;
  if (HAS_BIAS) { sum = bias[FIRST_ROW + id.x]; }
  for (var c = 0u; c < K; c++) { sum = fma(weight_at(id.x * K + c), x[id.y * X_STRIDE + X_OFFSET + c], sum); }
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = sum;
}
