// kv_write: writes a row's key and value to its page, in the state's type. A stored row is TILE_WORDS words
// of quants for each tile of 64 values, then SCALE_WORDS words of scales for each tile. grid: (tiles of the
// wider of key and value, rows, key and value).
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;

const TILE: u32 = 64u;
override WIDTH: u32 = 1u;
override V_WIDTH: u32 = 1u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override V_STRIDE: u32 = 0u;
override V_OFFSET: u32 = 0u;

var<workgroup> tile: array<f32, TILE>;

fn given(is_key: bool, row: u32, c: u32) -> f32 {
  if (is_key) { return k[row * K_STRIDE + K_OFFSET + c]; }
  return v[row * V_STRIDE + V_OFFSET + c];
}

fn put(is_key: bool, at: u32, word: u32) {
  if (is_key) { keys[at] = word; } else { values[at] = word; }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let is_key = group.z == 0u;
  let width = select(V_WIDTH, WIDTH, is_key);
  let c = group.x * TILE + lane;
  tile[lane] = 0.0;
  if (c < width) { tile[lane] = given(is_key, group.y, c); }
  workgroupBarrier();
  let row = row_at(group.y);
  let row_quants = width * TILE_WORDS / TILE;
  let row_words = row_quants + tiles_of(width) * SCALE_WORDS;
  let to = pool_row(table_of(group_at(row.sequence, GROUP)), row.state_row) * row_words;
  let word = group.x * TILE_WORDS + lane;
  if (lane < TILE_WORDS && word < row_quants) { put(is_key, to + word, quants(lane)); }
  if (lane < SCALE_WORDS && group.x < tiles_of(width)) { put(is_key, to + row_quants + group.x, scales()); }
}

fn tiles_of(width: u32) -> u32 { return (width + TILE - 1u) / TILE; }
