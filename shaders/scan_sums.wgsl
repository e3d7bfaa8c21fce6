// scan_sums: sums over a state row of a scan, over the columns of each lane in order, then over its lanes in order. Rows
// of the step take turns in two halves of `sums`, so that one barrier per row is enough. The op's file has `Sums`.
var<workgroup> sums: array<Sums, 2u * LANES>;

fn row_sums(row: u32, lane: u32, own: Sums) -> Sums {
  let half = row % 2u * LANES;
  sums[half + lane] = own;
  workgroupBarrier();
  let at = half + lane / EACH * EACH;
  var sum = sums[at];
  for (var l = 1u; l < EACH; l++) { sum += sums[at + l]; }
  return sum;
}
