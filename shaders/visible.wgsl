// visible: the keys of the KV cache that a row sees.
const HELD: u32 = 1u;
const CHUNKED: u32 = 2u;
override MASK: u32 = 0u;
override WINDOW: u32 = 0u;

fn first_key(row: Row, state: Group) -> u32 {
  // Browsers refuse a pipeline that divides by a constant of 0, even where the division never runs.
  if (MASK == CHUNKED) { return max(state.write, row.state_row / max(WINDOW, 1u) * WINDOW); }
  let next = row.state_row + 1u;
  if (WINDOW == 0u || next <= WINDOW) { return state.write; }
  return max(state.write, next - WINDOW);
}

fn end_key(row: Row, state: Group) -> u32 { return select(row.state_row + 1u, state.held, MASK == HELD); }
