// matvec_quads: outputs of matvec, a quad for each LANES lanes.
// grid: (tiles of 64 / LANES quads, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let quads = GROUP_LANES / LANES;
  let quad = (group.z * TILES_X + group.x) * quads;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  if (IS_DEFERRED) { stage_squares(first, tokens - 1u, lane); }
  let own = quad + lane / LANES;
  // With a bound, rows have cheaper addresses: q4_0 on an RX 7900 XTX 72 and 60 registers, 20 and 24 waves.
  let rows = quad_rows(min(own, n_quads() - 1u));
  partial_sums(own < n_quads(), rows, (first * X_STRIDE + X_OFFSET) / 4u, tokens - 1u, lane);
  workgroupBarrier();
  for (var i = lane; i < quads * tokens; i += GROUP_LANES) {
    let t = i / quads;
    var scale = 1.0;
    if (IS_DEFERRED) { scale = norm_scale(squares_of(t)); }
    if (quad + i % quads < n_quads()) { finish(first + t, quad + i % quads, total(i % quads, t), scale); }
  }
}
