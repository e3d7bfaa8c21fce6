// scan_inputs: the inputs of a scan's rows that state rows share: inputs[t] = keys, queries (b and c, or k and q),
// then for each head its factor (dt, or beta) and its decay exp(dt * a), where dt = softplus(dt + dt_bias). With
// decays BY_COLUMN the row ends with the factors.  grid: (tiles of 64 floats of a row of inputs, rows).
@group(0) @binding(1) var<storage, read_write> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> queries: array<f32>;
@group(0) @binding(4) var<storage, read> dt: array<f32>;
@group(0) @binding(5) var<storage, read> beta: array<f32>;
@group(0) @binding(6) var<storage, read> a: array<f32>;
@group(0) @binding(7) var<storage, read> dt_bias: array<f32>;

override KEY_FLOATS: u32 = 1u;  // of all groups
override HEADS: u32 = 1u;
override INPUT_FLOATS: u32 = 1u;  // of a row
override BY_COLUMN: bool = false;
override HAS_BETA: bool = false;
override HAS_DT_BIAS: bool = false;
override KEYS_STRIDE: u32 = 0u;
override KEYS_OFFSET: u32 = 0u;
override QUERIES_STRIDE: u32 = 0u;
override QUERIES_OFFSET: u32 = 0u;
override DT_STRIDE: u32 = 0u;
override DT_OFFSET: u32 = 0u;
override BETA_STRIDE: u32 = 0u;
override BETA_OFFSET: u32 = 0u;

fn time_step(row: u32, head: u32) -> f32 {
  let v = dt[row * DT_STRIDE + DT_OFFSET + head];
  if (HAS_DT_BIAS) { return softplus(v + dt_bias[head]); }
  return softplus(v);
}

fn input_at(row: u32, i: u32) -> f32 {
  if (i < KEY_FLOATS) { return keys[row * KEYS_STRIDE + KEYS_OFFSET + i]; }
  if (i < 2u * KEY_FLOATS) { return queries[row * QUERIES_STRIDE + QUERIES_OFFSET + i - KEY_FLOATS]; }
  let number = i - 2u * KEY_FLOATS;
  let head = number % HEADS;
  if (number >= HEADS) { return fine_exp(time_step(row, head) * a[head]); }
  if (HAS_BETA) { return beta[row * BETA_STRIDE + BETA_OFFSET + head]; }
  return time_step(row, head);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < INPUT_FLOATS) { inputs[id.y * INPUT_FLOATS + id.x] = input_at(id.y, id.x); }
}
