// scan_rwkv7: S = S * decay - outer(S @ u, a * u) + outer(v, key); y = S @ r, for each head, row by row, with a decay
// for each column; x is v. Sums over the state before give y, so that the lanes of a state row meet once per row of the
// step: S @ u, (S * decay) @ r, (a * u) @ r and key @ r.  grid: (tiles of TILE state rows, sequences).
alias Sums = vec4<f32>;

// A column of the row's inputs; see rwkv7_inputs.wgsl.
struct Column { unit: f32, correction: f32, key: f32, decay: f32, r: f32 }

fn column_at(at: u32) -> Column {
  return Column(inputs[at], inputs[at + KEY_FLOATS], inputs[at + 2u * KEY_FLOATS], inputs[at + 3u * KEY_FLOATS],
                inputs[at + 4u * KEY_FLOATS]);
}

fn lane_sums(key: u32, place: Place) -> Sums {
  var sum = Sums(0.0);
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c >= COLS) { continue; }
    let one = column_at(key + c);
    sum = fma(vec4(part[i], part[i] * one.decay, one.correction, one.key), vec4(one.unit, one.r, one.r, one.r), sum);
  }
  return sum;
}

fn advance(key: u32, place: Place, held: f32, v: f32) {
  for (var i = 0u; i < PER; i++) {
    let c = place.column + i * EACH;
    if (c >= COLS) { continue; }
    let one = column_at(key + c);
    part[i] = fma(v, one.key, fma(-held, one.correction, part[i] * one.decay));
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let slot = slot_of(group.y);
  let place = place_of(group.x, lane);
  load_part(slot, place);
  for (var row = slot.first; row < slot.first + slot.rows; row++) {
    let key = row * INPUT_FLOATS + place.key;
    let sum = row_sums(row, lane, lane_sums(key, place));
    let v = x_at(row, place.row);
    advance(key, place, sum.x, v);
    if (place.is_used && place.column == 0u) { put_y(row, place.row, fma(v, sum.w, fma(-sum.x, sum.z, sum.y))); }
  }
  store_part(slot, place);
}
