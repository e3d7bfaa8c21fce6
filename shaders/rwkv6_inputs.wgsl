// rwkv6_inputs: for each row of the step, the vectors that all state rows of a head need in scan_rwkv6: inputs[t] =
// key, decay, and two vectors of y = S @ read + v * sum(own) with the S before the row, each of KEY_FLOATS columns.
// With u, read = r and own = r * u * k; without, key = (1 - decay) * k, read = decay * r and own = r * key.
// grid: (tiles of 64 columns, rows).
@group(0) @binding(1) var<storage, read_write> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> r: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;
@group(0) @binding(5) var<storage, read> u: array<f32>;

override COLS: u32 = 1u;  // of a head
override HEADS_PER_KEY: u32 = 1u;  // neighbouring heads with the same k
override KEY_FLOATS: u32 = 1u;  // of all heads
override INPUT_FLOATS: u32 = 1u;  // of a row
override HAS_U: bool = false;
override R_STRIDE: u32 = 0u;
override R_OFFSET: u32 = 0u;
override W_STRIDE: u32 = 0u;
override W_OFFSET: u32 = 0u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;

// 1 - exp(-v) for v >= 0, in all digits also near 0, where it is v - v^2 / 2 + v^3 / 6 - ...; NaN stays NaN.
fn one_minus_exp(v: f32) -> f32 {
  let high = fma(-v, fma(-v, fma(-v, 1.0 / 40320.0, 1.0 / 5040.0), 1.0 / 720.0), 1.0 / 120.0);
  let series = fma(-v, fma(-v, fma(-v, fma(-v, high, 1.0 / 24.0), 1.0 / 6.0), 0.5), 1.0);
  return select(1.0 - fine_exp(-v), v * series, v < 0.5);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  if (c >= KEY_FLOATS) { return; }
  let key = k[id.y * K_STRIDE + K_OFFSET + c / COLS / HEADS_PER_KEY * COLS + c % COLS];
  let rate = fine_exp(w[id.y * W_STRIDE + W_OFFSET + c]);
  let decay = fine_exp(-rate);
  let query = r[id.y * R_STRIDE + R_OFFSET + c];
  let entering = one_minus_exp(rate) * key;
  var all = vec4(entering, decay, decay * query, query * entering);
  if (HAS_U) { all = vec4(key, decay, query, query * u[c] * key); }
  for (var i = 0u; i < 4u; i++) { inputs[id.y * INPUT_FLOATS + i * KEY_FLOATS + c] = all[i]; }
}
