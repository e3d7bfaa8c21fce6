// attention: y[t, h] = softmax(SCALE * q[t, h] . keys) @ values over keys first_kept .. state_row of the row's
// sequence, in pages, with an online softmax over tiles of 64 keys.  grid: (query heads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<f32>;
@group(0) @binding(4) var<storage, read> values: array<f32>;
@group(0) @binding(5) var<storage, read> units: array<u32>;

const LANES: u32 = 64u;
const MAX_SLICES: u32 = 4u;  // a lane makes head_dim / 64 outputs; head_dim is at most 256
override GROUP: u32 = 0u;
override TABLE_COLS: u32 = 1u;
override UNIT_ROWS: u32 = 16u;
override HEADS_PER_KV: u32 = 1u;
override HEAD_DIM: u32 = 64u;
override WIDTH: u32 = 64u;  // floats of a key row: kv heads x head_dim
override SCALE: f32 = 1.0;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override Q_STRIDE: u32 = 0u;
override Q_OFFSET: u32 = 0u;

var<workgroup> query: array<f32, 256>;
var<workgroup> scores: array<f32, LANES>;
var<workgroup> places: array<u32, LANES>;  // where each key of the tile lies

fn score(at: u32) -> f32 {
  var sum = 0.0;
  for (var d = 0u; d < HEAD_DIM; d++) { sum += query[d] * keys[at + d]; }
  return sum * SCALE;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = row_at(group.y);
  let state = group_at(row.sequence, GROUP);
  let head = group.x * HEAD_DIM;
  let kv_head = group.x / HEADS_PER_KV * HEAD_DIM;
  for (var d = lane; d < HEAD_DIM; d += LANES) { query[d] = q[group.y * Q_STRIDE + Q_OFFSET + head + d]; }
  var top = -3.0e38;
  var weight_sum = 0.0;
  var out: array<f32, MAX_SLICES>;
  for (var tile = state.write; tile <= row.state_row; tile += LANES) {
    let key = tile + lane;
    let n = min(LANES, row.state_row + 1u - tile);
    workgroupBarrier();  // query is there; the last tile's scores are used up
    if (lane < n) {
      let unit = units[state.read * TABLE_COLS + key / UNIT_ROWS];
      places[lane] = (unit * UNIT_ROWS + key % UNIT_ROWS) * WIDTH + kv_head;
      scores[lane] = score(places[lane]);
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
      for (var slice = 0u; slice * LANES + lane < HEAD_DIM; slice++) {
        out[slice] += prob * values[places[i] + slice * LANES + lane];
      }
    }
  }
  for (var slice = 0u; slice * LANES + lane < HEAD_DIM; slice++) {
    y[group.y * Y_STRIDE + Y_OFFSET + head + slice * LANES + lane] = out[slice] / weight_sum;
  }
}
