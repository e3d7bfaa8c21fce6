// scan_mamba2: S = decay * S + dt * outer(x, b); y = S @ c + d * x, for each head, row by row. With decays BY_COLUMN
// a column's decay is exp(dt * a[head, column]). A state row's sum is over the columns of each lane in order, then
// over its lanes in order.  grid: (tiles of TILE state rows, sequences).
@group(0) @binding(5) var<storage, read> a: array<f32>;
@group(0) @binding(6) var<storage, read> d: array<f32>;

const BATCH: u32 = 8u;  // rows of the step between two barriers
override BY_COLUMN: bool = false;
override HAS_D: bool = false;
var<workgroup> sums: array<f32, BATCH * LANES>;

// Advances the lane's columns by a row of the step; returns their part of S @ c.
fn advance(row: u32, place: Place) -> f32 {
  let key = row * INPUT_FLOATS + place.key;
  let dt = factor_at(row, place.head);
  let by = dt * x_at(row, place.row);
  var decay = 0.0;
  if (!BY_COLUMN) { decay = decay_at(row, place.head); }
  var sum = 0.0;
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c >= COLS) { continue; }
    if (BY_COLUMN) { decay = fine_exp(dt * a[place.head * COLS + c]); }
    part[i] = fma(by, inputs[key + c], decay * part[i]);
    sum = fma(part[i], inputs[key + KEY_FLOATS + c], sum);
  }
  return sum;
}

// y of a row of the step, from the sums of row `at` of the tile.
fn finish(row: u32, state_row: u32, at: u32) {
  var sum = sums[at];
  for (var l = 1u; l < EACH; l++) { sum += sums[at + l]; }
  if (HAS_D) { sum = fma(d[state_row / HEAD_ROWS], x_at(row, state_row), sum); }
  put_y(row, state_row, sum);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = slot_of(group.y);
  let place = place_of(group.x, lane);
  load_part(slot, place);
  for (var done = 0u; done < slot.rows; done += BATCH) {
    let n = min(BATCH, slot.rows - done);
    let first = slot.first + done;
    for (var r = 0u; r < n; r++) { sums[r * LANES + lane] = advance(first + r, place); }
    workgroupBarrier();
    for (var i = lane; i < n * TILE; i += LANES) {
      let state_row = group.x * TILE + i % TILE;
      if (state_row < STATE_ROWS) { finish(first + i / TILE, state_row, i / TILE * LANES + i % TILE * EACH); }
    }
    workgroupBarrier();
  }
  store_part(slot, place);
}
