// norm_rope_write: keys and values go to the row's page.
@group(0) @binding(6) var<storage, read_write> layer: array<u32>;  // keys, then values from word VALUES_AT on
@group(0) @binding(7) var<storage, read> k_gain: array<f32>;

override VALUES_AT: u32 = 0u;

fn store_pair(t: u32, column: u32, values: vec2<f32>) {
  if (column < TURNED - WIDTH) { return; }
  let row = row_at(t);
  let to = pool_row(table_of(group_at(row.sequence, GROUP)), row.state_row);
  if (column >= TURNED) {
    put_pair(VALUES_AT, to * V_WIDTH + column - TURNED, values);
  } else {
    put_pair(0u, to * WIDTH + column - (TURNED - WIDTH), values);
  }
}
