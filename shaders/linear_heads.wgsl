// linear_heads: y[t, h, n] = weight[h] @ x[t, h] for n < N; a head's other columns pass unchanged.
// grid: (tiles of 64 / LANES quads, tiles of TOKENS t, heads). Joined before partial; see bias.
override X_HEAD: u32 = 1u;  // floats of a head of x
override Y_HEAD: u32 = 1u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let quads = GROUP_LANES / LANES;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let own = 4u * (group.x * quads + lane / LANES);
  let rows = group.z * N + min(vec4(own) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
  let x_at = (first * X_STRIDE + X_OFFSET + group.z * X_HEAD) / 4u;
  partial_sums(own < N, rows, x_at, tokens - 1u, lane);
  workgroupBarrier();
  let to = Y_OFFSET + group.z * Y_HEAD;
  for (var i = lane; i < quads * tokens; i += GROUP_LANES) {
    let sums = total(i % quads, i / quads);
    let n = 4u * (group.x * quads + i % quads);
    for (var r = 0u; r < 4u; r++) {
      if (n + r < N) { y[(first + i / quads) * Y_STRIDE + to + n + r] = sums[r]; }
    }
  }
  if (group.x > 0u) { return; }
  let rest = X_HEAD - K;
  for (var i = lane; i < rest * tokens; i += GROUP_LANES) {
    let c = K + i % rest;
    let value = x[x_at + (i / rest * X_STRIDE + c) / 4u][c % 4u];
    y[(first + i / rest) * Y_STRIDE + to + N + i % rest] = value;
  }
}
