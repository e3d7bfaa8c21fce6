  // sample: draws the id of each output.  grid: a threadgroup per output.
  threadgroup uint touched[MOST_TOUCHED];
  threadgroup uint filter[FILTER_WORDS];
  threadgroup float changed[MOST_TOUCHED];
  threadgroup float weights[MOST_WANTED];
  if (o >= step[2]) {
    if (i < 4) y[o * 4 + i] = 0;
    return;
  }
  uint sequence = output_at(step, o)[1], position = output_at(step, o)[2];
  const device uint *how = step + step[SAMPLING_AT] + HOW_WORDS * sequence_at(step, sequence)[3];
  const device uint *own_ring = ring + ulong(group_at(step, sequence, GROUP).write) * RING_ROWS;
  Scan scanned = scan(row, sums, places, i);
  Penalties penalties = penalties_of(step, how);
  penalties.last_n = min(penalties.last_n, n_ids_before(position, newest_position(step, o)));
  Logits own = {row, touched, filter, changed, penalties.last_n + penalties.n_biases > 0};
  ulong own_top = scanned.own_top, best = scanned.top;
  if (own.is_adjusted) {
    adjust(own, penalties, own_ring, position, i);
    own_top = own_highest(own, i);
    best = block_max(own_top, places, i);
  }
  Draw draw = draw_of(how, position);
  if (draw.temperature > 0.0f)
    best = block_max(best_of(own, selection, weights, own_top, value_at(best), draw, i), places, i);
  if (i != 0) return;
  uint id = min(id_at(best), VOCAB - 1);
  y[o * 4] = id;
  y[o * 4 + 1] = scanned.status;
  y[o * 4 + 2] = as_type<uint>(row[id]);
  y[o * 4 + 3] = as_type<uint>(scanned.log_sum_exp);
