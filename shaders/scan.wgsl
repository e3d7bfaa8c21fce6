// scan: parts of the scans. A slot has STATE_ROWS rows of COLS floats; EACH neighbouring lanes share a row, in which
// lane l has columns l, l + EACH, ...  grid of the scans: (tiles of TILE state rows, sequences).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> inputs: array<f32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;

const LANES: u32 = 64u;
const MOST: u32 = 16u;
override STATE_ROWS: u32 = 1u;
override COLS: u32 = 1u;
override EACH: u32 = 1u;
override PER: u32 = (COLS + EACH - 1u) / EACH;  // columns of a lane, at most MOST
override TILE: u32 = LANES / EACH;
override HEADS: u32 = 1u;
override HEAD_ROWS: u32 = STATE_ROWS / HEADS;
override HEADS_PER_KEY: u32 = 1u;  // neighbouring heads with the same keys and queries
override KEY_FLOATS: u32 = 1u;
override INPUT_FLOATS: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

struct Place { row: u32, head: u32, column: u32, key: u32, is_used: bool }  // key: the first of the head's keys
var<private> part: array<f32, MOST>;  // the lane's columns of its state row

// Lanes beyond the last row take its place, and write nothing.
fn place_of(group: u32, lane: u32) -> Place {
  let wanted = group * TILE + lane / EACH;
  let row = min(wanted, STATE_ROWS - 1u);
  let head = row / HEAD_ROWS;
  return Place(row, head, lane % EACH, head / HEADS_PER_KEY * COLS, wanted < STATE_ROWS);
}

fn load_part(slot: Slot, place: Place) {
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    part[i] = 0.0;
    if (slot.is_held && c < COLS) { part[i] = state[slot.read + place.row * COLS + c]; }
  }
}

fn store_part(slot: Slot, place: Place) {
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (place.is_used && c < COLS) { state[slot.write + place.row * COLS + c] = part[i]; }
  }
}

fn factor_at(row: u32, head: u32) -> f32 { return inputs[row * INPUT_FLOATS + 2u * KEY_FLOATS + head]; }
fn decay_at(row: u32, head: u32) -> f32 { return inputs[row * INPUT_FLOATS + 2u * KEY_FLOATS + HEADS + head]; }
fn x_at(row: u32, state_row: u32) -> f32 { return x[row * X_STRIDE + X_OFFSET + state_row]; }
fn put_y(row: u32, state_row: u32, v: f32) { y[row * Y_STRIDE + Y_OFFSET + state_row] = v; }
