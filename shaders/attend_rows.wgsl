// attend_rows: y[t, h] = softmax(SCALE * q[t, h] . keys + bias) @ values over rows of t's own sequence in this step: all
// of them; with mask causal those up to t; with mask symmetric those at most WINDOW / 2 away. A bias [BIAS_ROWS, heads]
// goes by the distance of a key, from -n to n on, where BIAS_ROWS = 2 * n + 1. grid: (sides of query heads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;

const CAUSAL: u32 = 1u;
const SYMMETRIC: u32 = 2u;
override MASK: u32 = 0u;
override WINDOW: u32 = 0u;
override HAS_BIAS: bool = false;
override BIAS_ROWS: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override V_STRIDE: u32 = 0u;
override V_OFFSET: u32 = 0u;

fn held4(_is_tail: bool, tensor: u32, row: u32, i: u32) -> vec4<f32> {
  if (tensor == KEYS) { return k[(row * K_STRIDE + K_OFFSET) / 4u + i]; }
  return v[(row * V_STRIDE + V_OFFSET) / 4u + i];
}

fn pool_row(table: u32, key: u32) -> u32 { return table + key; }  // table: the sequence's first row

fn bias_of(row: u32, key: u32, head: u32) -> f32 {
  if (!HAS_BIAS) { return 0.0; }
  let most = i32(BIAS_ROWS / 2u);
  return bias[u32(clamp(i32(key) - i32(row), -most, most) + most) * HEADS + head];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let sequence = sequence_at(row_at(group.y).sequence);
  let start = step[sequence];
  let row = group.y - start;
  let reach = WINDOW / 2u;
  var first = 0u;
  var end = step[sequence + 1u];
  if (MASK == CAUSAL) { end = row + 1u; }
  if (MASK == SYMMETRIC) {
    first = max(row, reach) - reach;
    end = min(end, row + reach + 1u);
  }
  load_query(group.y, group.x, lane);
  begin();
  attend(false, start, first, end, row, group.x, lane);
  let sums = sums_of_shares(lane);
  if (lane < PARTS) {
    let to = group.y * Y_STRIDE + Y_OFFSET + group.x * V_DIM + 4u * lane;
    let mean = sums.out / sums.sum;
    for (var i = 0u; i < 4u; i++) { y[to + i] = mean[i]; }
  }
}
