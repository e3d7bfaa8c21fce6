// cached: keys and values of the KV cache, for `attend`. With a tail, keys from the border on are read from the tail, as
// f16; see plan/tiers.py. A bias [BIAS_ROWS, query heads] goes by distance; its last row serves all larger distances.
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<u32>;
@group(0) @binding(6) var<storage, read> tail: array<u32>;  // keys, then values
@group(0) @binding(7) var<storage, read> extra: array<f32>;  // sinks or bias; no op has both

override WIDTH: u32 = 64u;  // floats of a key row: KV heads x HEAD_DIM
override V_WIDTH: u32 = 64u;  // floats of a value row: KV heads x V_HEAD
override HAS_BIAS: bool = false;
override BIAS_ROWS: u32 = 1u;
override HAS_TAIL: bool = false;
override TAIL_GROUP: u32 = 0u;
override TAIL_TABLE_AT: u32 = 0u;
override TAIL_TABLE_COLS: u32 = 1u;
override TAIL_VALUES_AT: u32 = 0u;
override TAIL_ROWS: u32 = 256u;
override TAIL_BATCH: u32 = 64u;

fn word(tensor: u32, at: u32) -> u32 {
  if (tensor == KEYS) { return keys[at]; }
  return values[at];
}

fn held4(is_tail: bool, tensor: u32, row: u32, i: u32) -> vec4<f32> {
  let width = select(V_WIDTH, WIDTH, tensor == KEYS);
  if (!is_tail) { return stored4(tensor, row, width, i); }
  let at = select(TAIL_VALUES_AT, 0u, tensor == KEYS) + row * (width / 2u) + 2u * i;
  return vec4(unpack2x16float(tail[at]), unpack2x16float(tail[at + 1u]));
}

fn bias_of(state_row: u32, key: u32, head: u32) -> f32 {
  if (!HAS_BIAS) { return 0.0; }
  return extra[min(state_row - key, BIAS_ROWS - 1u) * HEADS + head];
}

fn first_tail_key(row: Row) -> u32 {
  let next = row.state_row + 1u;
  return (max(next, TAIL_ROWS) - TAIL_ROWS) / TAIL_BATCH * TAIL_BATCH;
}

// The sums over keys [first, end), for lanes below PARTS.
fn run_of(row: Row, state: Group, first: u32, end: u32, side: u32, lane: u32) -> Softmax {
  begin();
  let border = select(end, clamp(first_tail_key(row), first, end), HAS_TAIL);
  attend(false, table_of(state), first, border, row.state_row, side, lane);
  if (HAS_TAIL) {
    let recent = group_at(row.sequence, TAIL_GROUP);
    let table = TAIL_TABLE_AT + recent.read * TAIL_TABLE_COLS;
    attend(true, table, max(border, recent.write), end, row.state_row, side, lane);
  }
  return sums_of_shares(lane);
}
