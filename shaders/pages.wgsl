// pages: pool row of a row of a sequence. One buffer holds the page tables of all groups.
@group(0) @binding(5) var<storage, read> pages: array<u32>;

override GROUP: u32 = 0u;
override TABLE_AT: u32 = 0u;
override TABLE_COLS: u32 = 1u;
override UNIT_ROWS: u32 = 16u;

fn table_of(state: Group) -> u32 { return TABLE_AT + state.read * TABLE_COLS; }

fn pool_row(table: u32, row: u32) -> u32 {
  return pages[table + row / UNIT_ROWS] * UNIT_ROWS + row % UNIT_ROWS;
}
