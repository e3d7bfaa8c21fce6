// partial: the sums of the lanes of a workgroup, for matvec and matvec_q8.
const GROUP_LANES: u32 = 64u;
const MAX_TOKENS: u32 = 8u;

var<workgroup> partial: array<vec4<f32>, 64u * TOKENS>;  // [TOKENS, lanes]

fn total(quad: u32, t: u32) -> vec4<f32> {  // of the workgroup's quad
  let first = t * GROUP_LANES + quad * LANES;
  var sum = vec4<f32>();
  for (var i = 0u; i < LANES; i++) { sum += partial[first + i]; }
  return sum;
}
