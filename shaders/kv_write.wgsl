// kv_write: writes a row's key and value to its page, in the state's type. A stored row is TILE_WORDS words
// of quants for each tile of 64 values, then SCALE_WORDS words of scales for each tile. grid: (tiles of the
// wider of key and value, rows, key and value). kv_both or kv_alone has the bindings.
const TILE: u32 = 64u;
override WIDTH: u32 = 1u;
override V_WIDTH: u32 = 1u;

var<workgroup> tile: array<f32, TILE>;

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
