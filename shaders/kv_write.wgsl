// kv_write: the row's key and value go to its page.  grid: (tiles of 64 floats of the wider, rows).
@group(0) @binding(1) var<storage, read_write> k: array<f32>;
@group(0) @binding(2) var<storage, read_write> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<f32>;
@group(0) @binding(4) var<storage, read_write> values: array<f32>;
@group(0) @binding(5) var<storage, read> units: array<u32>;

override GROUP: u32 = 0u;
override TABLE_COLS: u32 = 1u;
override UNIT_ROWS: u32 = 16u;
override WIDTH: u32 = 1u;
override V_WIDTH: u32 = 1u;
override K_STRIDE: u32 = 0u;
override K_OFFSET: u32 = 0u;
override V_STRIDE: u32 = 0u;
override V_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = row_at(id.y);
  let table = group_at(row.sequence, GROUP).read * TABLE_COLS;
  let unit = units[table + row.state_row / UNIT_ROWS];
  let to = unit * UNIT_ROWS + row.state_row % UNIT_ROWS;
  if (id.x < WIDTH) { keys[to * WIDTH + id.x] = k[id.y * K_STRIDE + K_OFFSET + id.x]; }
  if (id.x < V_WIDTH) { values[to * V_WIDTH + id.x] = v[id.y * V_STRIDE + V_OFFSET + id.x]; }
}
