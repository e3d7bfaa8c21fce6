// reduce: sum over the lanes of a workgroup, in a fixed order. Every lane gets the sum.
override LANES: u32 = 64u;
var<workgroup> scratch: array<f32, LANES>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
  workgroupBarrier();  // lanes may still read scratch from the call before
  scratch[lane] = value;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { scratch[lane] += scratch[lane + width]; }
  }
  workgroupBarrier();
  return scratch[0];
}
