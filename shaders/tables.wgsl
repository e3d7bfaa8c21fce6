// tables: pages[table_row, index] = unit for each of the step's updates in this group.
// grid: tiles of 64 updates.
@group(0) @binding(1) var<storage, read_write> pages: array<u32>;

override GROUP: u32 = 0u;
override TABLE_AT: u32 = 0u;
override TABLE_COLS: u32 = 1u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let at = step[UPDATES_AT] + 4u * id.x;
  if (id.x >= step[UPDATES] || step[at] != GROUP) { return; }
  pages[TABLE_AT + step[at + 1u] * TABLE_COLS + step[at + 2u]] = step[at + 3u];
}
