// attention: y[t, h] = softmax(cap(SCALE * q[t, h] . keys)) @ values over the keys that the row sees, in pages,
// with an online softmax over tiles of 64 keys. Causal: keys first_kept .. state_row, of them the last WINDOW
// (0: all); held: first_kept .. held - 1. A sink is one more score a head, with no value. A bias [BIAS_ROWS,
// query heads] adds to the scores by distance, its last row beyond.  grid: (query heads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<f32>;
@group(0) @binding(4) var<storage, read> values: array<f32>;
@group(0) @binding(5) var<storage, read> units: array<u32>;
@group(0) @binding(6) var<storage, read> sinks: array<f32>;
@group(0) @binding(7) var<storage, read> bias: array<f32>;

const LANES: u32 = 64u;
const HELD: u32 = 1u;
const MAX_SLICES: u32 = 4u;  // a lane makes V_DIM / 64 outputs; V_DIM is at most 256, as is HEAD_DIM
override GROUP: u32 = 0u;
override TABLE_COLS: u32 = 1u;
override UNIT_ROWS: u32 = 16u;
override HEADS_PER_KV: u32 = 1u;
override HEAD_DIM: u32 = 64u;
override V_DIM: u32 = 64u;  // floats of a value that are used
override V_HEAD: u32 = 64u;  // floats of a value
override WIDTH: u32 = 64u;  // floats of a key row: kv heads x HEAD_DIM
override V_WIDTH: u32 = 64u;  // floats of a value row: kv heads x V_HEAD
override SCALE: f32 = 1.0;
override SOFTCAP: f32 = 0.0;
override WINDOW: u32 = 0u;
override MASK: u32 = 0u;
override HAS_SINKS: bool = false;
override HAS_BIAS: bool = false;
override BIAS_ROWS: u32 = 1u;
override HEADS: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override Q_STRIDE: u32 = 0u;
override Q_OFFSET: u32 = 0u;

var<workgroup> query: array<f32, 256>;
var<workgroup> scores: array<f32, LANES>;
var<workgroup> places: array<u32, LANES>;  // the row of the pool that holds each key of the tile

fn score(at: u32) -> f32 {
  var sum = 0.0;
  for (var d = 0u; d < HEAD_DIM; d++) { sum += query[d] * keys[at + d]; }
  sum *= SCALE;
  if (SOFTCAP > 0.0) { sum = SOFTCAP * smooth_tanh(sum / SOFTCAP); }
  return sum;
}

fn first_key(row: Row, state: Group) -> u32 {
  let next = row.state_row + 1u;
  if (MASK == HELD || WINDOW == 0u || next <= WINDOW) { return state.write; }
  return max(state.write, next - WINDOW);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = row_at(group.y);
  let state = group_at(row.sequence, GROUP);
  let head = group.x * HEAD_DIM;
  let kv_head = group.x / HEADS_PER_KV;
  for (var d = lane; d < HEAD_DIM; d += LANES) { query[d] = q[group.y * Q_STRIDE + Q_OFFSET + head + d]; }
  var top = -3.0e38;
  var weight_sum = 0.0;
  if (HAS_SINKS) {
    top = sinks[group.x];
    weight_sum = 1.0;
  }
  var out: array<f32, MAX_SLICES>;
  let end = select(row.state_row + 1u, state.held, MASK == HELD);
  for (var tile = first_key(row, state); tile < end; tile += LANES) {
    let key = tile + lane;
    let n = min(LANES, end - tile);
    workgroupBarrier();  // query is there; the last tile's scores are used up
    if (lane < n) {
      let unit = units[state.read * TABLE_COLS + key / UNIT_ROWS];
      places[lane] = unit * UNIT_ROWS + key % UNIT_ROWS;
      scores[lane] = score(places[lane] * WIDTH + kv_head * HEAD_DIM);
      if (HAS_BIAS) { scores[lane] += bias[min(row.state_row - key, BIAS_ROWS - 1u) * HEADS + group.x]; }
    }
    workgroupBarrier();
    var tile_top = top;
    for (var i = 0u; i < n; i++) { tile_top = max(tile_top, scores[i]); }
    let fade = exp(top - tile_top);
    top = tile_top;
    weight_sum *= fade;
    for (var slice = 0u; slice < MAX_SLICES; slice++) { out[slice] *= fade; }
    for (var i = 0u; i < n; i++) {
      let prob = exp(scores[i] - top);
      weight_sum += prob;
      let at = places[i] * V_WIDTH + kv_head * V_HEAD;
      for (var slice = 0u; slice * LANES + lane < V_DIM; slice++) {
        out[slice] += prob * values[at + slice * LANES + lane];
      }
    }
  }
  let to = group.y * Y_STRIDE + Y_OFFSET + group.x * V_DIM;
  for (var slice = 0u; slice * LANES + lane < V_DIM; slice++) {
    y[to + slice * LANES + lane] = out[slice] / weight_sum;
  }
}
