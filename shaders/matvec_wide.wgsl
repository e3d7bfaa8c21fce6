// matvec_wide: as matvec_quads, with QUADS quads, two or four, for each LANES lanes. A software adapter loads x lane by
// lane, which takes as long as several products; the quads of a lane share the load.
// grid: (tiles of 64 / LANES * QUADS quads, tiles of TOKENS t, tiles / 32768).
override QUADS: u32 = 2u;

alias Rows = array<vec4<u32>, 4>;  // weight rows of a lane's quads
alias Sums = array<vec4<f32>, 4u * MAX_TOKENS>;  // [TOKENS, QUADS]

fn rows_of(own: u32) -> Rows {  // quads after the last are that one again
  var rows: Rows;
  for (var q = 0u; q < QUADS; q++) { rows[q] = quad_rows(min(own + q, n_quads() - 1u)); }
  return rows;
}

// A statement per quad: with a loop's index, chunks would be in memory, for twice the time.
fn one_sums(rows: Rows, x_at: u32, lane: u32) -> Sums {
  var sums: Sums;
  for (var c = lane % LANES; c < n_chunks(); c += LANES) {
    let input = input_at(x_at, c);
    sums[0] = add_rows(rows[0], c, input, sums[0]);
    sums[1] = add_rows(rows[1], c, input, sums[1]);
    if (QUADS > 2u) {
      sums[2] = add_rows(rows[2], c, input, sums[2]);
      sums[3] = add_rows(rows[3], c, input, sums[3]);
    }
  }
  return sums;
}

fn many_sums(rows: Rows, x_at: u32, last: u32, lane: u32) -> Sums {
  var sums: Sums;
  for (var c = lane % LANES; c < n_chunks(); c += LANES) {
    var chunks: array<Chunks, 4>;
    chunks[0] = chunks_at(rows[0], c);
    chunks[1] = chunks_at(rows[1], c);
    if (QUADS > 2u) {
      chunks[2] = chunks_at(rows[2], c);
      chunks[3] = chunks_at(rows[3], c);
    }
    for (var t = 0u; t < TOKENS; t++) {
      let input = input_at(x_at + min(t, last) * (X_STRIDE / 4u), c);
      let at = t * QUADS;
      sums[at] = add_chunks(chunks[0], input, sums[at]);
      sums[at + 1u] = add_chunks(chunks[1], input, sums[at + 1u]);
      if (QUADS > 2u) {
        sums[at + 2u] = add_chunks(chunks[2], input, sums[at + 2u]);
        sums[at + 3u] = add_chunks(chunks[3], input, sums[at + 3u]);
      }
    }
  }
  return sums;
}

fn sums_of(own: u32, x_at: u32, last: u32, lane: u32) -> Sums {
  if (own >= n_quads()) { return Sums(); }
  if (TOKENS == 1u) { return one_sums(rows_of(own), x_at, lane); }
  return many_sums(rows_of(own), x_at, last, lane);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let owners = GROUP_LANES / LANES;
  let quad = (group.z * TILES_X + group.x) * owners * QUADS;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  if (IS_DEFERRED) { stage_squares(first, tokens - 1u, lane); }
  var sums = sums_of(quad + lane / LANES * QUADS, (first * X_STRIDE + X_OFFSET) / 4u, tokens - 1u, lane);
  for (var q = 0u; q < QUADS; q++) {
    for (var t = 0u; t < TOKENS; t++) { partial[t * GROUP_LANES + lane] = sums[t * QUADS + q]; }
    workgroupBarrier();
    for (var i = lane; i < owners * tokens; i += GROUP_LANES) {
      let t = i / owners;
      let own = quad + i % owners * QUADS + q;
      var scale = 1.0;
      if (IS_DEFERRED) { scale = norm_scale(squares_of(t)); }
      if (own < n_quads()) { finish(first + t, own, total(i % owners, t), scale); }
    }
    workgroupBarrier();
  }
}
