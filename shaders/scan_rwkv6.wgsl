// scan_rwkv6: y = S @ read + v * sum(own), then S = S * decay + outer(v, key), for each head, row by row, with a decay
// for each column; x is v. See rwkv6_inputs.wgsl.  grid: (tiles of TILE state rows, sequences).
alias Sums = vec2<f32>;

fn lane_sums(key: u32, place: Place) -> Sums {
  var sum = Sums(0.0);
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c >= COLS) { continue; }
    let read = inputs[key + 2u * KEY_FLOATS + c];
    sum = fma(vec2(part[i], 1.0), vec2(read, inputs[key + 3u * KEY_FLOATS + c]), sum);
  }
  return sum;
}

fn advance(key: u32, place: Place, v: f32) {
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c < COLS) { part[i] = fma(v, inputs[key + c], part[i] * inputs[key + KEY_FLOATS + c]); }
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = slot_of(group.y);
  let place = place_of(group.x, lane);
  load_part(slot, place);
  for (var row = slot.first; row < slot.first + slot.rows; row++) {
    let key = row * INPUT_FLOATS + place.head * COLS;
    let sum = row_sums(row, lane, lane_sums(key, place));
    let v = x_at(row, place.key + place.row % COLS);
    advance(key, place, v);
    if (place.is_used && place.column == 0u) { put_y(row, place.row, fma(v, sum.y, sum.x)); }
  }
  store_part(slot, place);
}
