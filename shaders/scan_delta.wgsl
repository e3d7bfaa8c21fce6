// scan_delta: S = decay * S; S = S + beta * outer(v - S @ k, k); y = SCALE * S @ q, for each head, row by row; x is v.
// S @ k, S @ q and k @ q of the state before give y, so that the lanes of a state row meet once per row of the step.
// grid: (tiles of TILE state rows, sequences).
override SCALE: f32 = 1.0;
alias Sums = vec3<f32>;

fn lane_sums(key: u32, place: Place) -> Sums {
  var sum = Sums(0.0);
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c >= COLS) { continue; }
    let k = inputs[key + c];
    let q = inputs[key + KEY_FLOATS + c];
    sum = fma(vec3(part[i], part[i], k), vec3(k, q, q), sum);
  }
  return sum;
}

fn advance(key: u32, place: Place, decay: f32, by: f32) {
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c < COLS) { part[i] = fma(by, inputs[key + c], decay * part[i]); }
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = slot_of(group.y);
  let place = place_of(group.x, lane);
  load_part(slot, place);
  for (var row = slot.first; row < slot.first + slot.rows; row++) {
    let key = row * INPUT_FLOATS + place.key;
    let decay = decay_at(row, place.head);
    let sum = row_sums(row, lane, lane_sums(key, place));
    let by = factor_at(row, place.head) * fma(-decay, sum.x, x_at(row, place.row));
    advance(key, place, decay, by);
    if (place.is_used && place.column == 0u) { put_y(row, place.row, SCALE * fma(by, sum.z, decay * sum.y)); }
  }
  store_part(slot, place);
}
