// partial: the sums of the lanes of a workgroup, which one_token and many_tokens of matvec or matvec_q8 compute.
const GROUP_LANES: u32 = 64u;
const MAX_TOKENS: u32 = 8u;

var<workgroup> partial: array<vec4<f32>, 64u * TOKENS>;  // [TOKENS, lanes]

// x_at: the first token row, in vec4; last: the number of its last token. All lanes of a workgroup call it; a lane
// that is not `is_own` has no sums.
fn partial_sums(is_own: bool, rows: vec4<u32>, x_at: u32, last: u32, lane: u32) {
  if (TOKENS == 1u) {
    one_token(is_own, rows, x_at, lane);
  } else {
    many_tokens(is_own, rows, x_at, last, lane);
  }
}

fn total(quad: u32, t: u32) -> vec4<f32> {  // of the workgroup's quad
  let first = t * GROUP_LANES + quad * LANES;
  var sum = vec4<f32>();
  for (var i = 0u; i < LANES; i++) { sum += partial[first + i]; }
  return sum;
}
