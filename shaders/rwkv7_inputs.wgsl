// rwkv7_inputs: for each row of the step, the vectors that all state rows of a head need in scan_rwkv7: inputs[t] =
// u (k_k * k of length 1), a * u, key, decay and r, each of KEY_FLOATS columns.  grid: (heads, rows).
@group(0) @binding(1) var<storage, read_write> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> r: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;
@group(0) @binding(5) var<storage, read> a: array<f32>;
@group(0) @binding(6) var<storage, read> k_k: array<f32>;
@group(0) @binding(7) var<storage, read> k_a: array<f32>;

override COLS: u32 = 1u;  // of a head
override KEY_FLOATS: u32 = 1u;  // of all heads
override INPUT_FLOATS: u32 = 1u;  // of a row
override R_STRIDE: u32 = 0u;
override R_OFFSET: u32 = 0u;
override W_STRIDE: u32 = 0u;
override W_OFFSET: u32 = 0u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override A_STRIDE: u32 = 0u;
override A_OFFSET: u32 = 0u;

// exp(-exp(-1/2) * sigmoid(v)); NaN stays NaN.
fn decay_of(v: f32) -> f32 { return fine_exp(-0.6065306597 / (1.0 + fine_exp(-v))); }

fn k_at(row: u32, c: u32) -> f32 { return k[row * K_STRIDE + K_OFFSET + c]; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let first = group.x * COLS;
  var squares = 0.0;
  for (var c = first + lane; c < first + COLS; c += LANES) {
    let v = k_at(row, c) * k_k[c];
    squares = fma(v, v, squares);
  }
  let total = workgroup_sum(squares, lane);
  let scale = select(1.0 / max(sqrt(total), 1e-12), total, is_nan(total));
  for (var c = first + lane; c < first + COLS; c += LANES) {
    let rate = a[row * A_STRIDE + A_OFFSET + c];
    let unit = k_at(row, c) * k_k[c] * scale;
    let at = row * INPUT_FLOATS + c;
    inputs[at] = unit;
    inputs[at + KEY_FLOATS] = rate * unit;
    inputs[at + 2u * KEY_FLOATS] = rwkv7_key(k_at(row, c), rate, k_a[c]);
    inputs[at + 3u * KEY_FLOATS] = decay_of(w[row * W_STRIDE + W_OFFSET + c]);
    inputs[at + 4u * KEY_FLOATS] = r[row * R_STRIDE + R_OFFSET + c];
  }
}
