// topk: exact selection of the highest `want` (at most LANES = 256) of V logits; `sorted` gets them in order.
const KEPT: u32 = 512u;  // places to sort
const DIGITS: u32 = 8u;  // digits of a place, 8 bits each
var<workgroup> tops: array<vec2<u32>, LANES>;
var<workgroup> guess: vec2<u32>;
var<workgroup> kept: array<vec2<u32>, KEPT>;
var<workgroup> n_kept: atomic<u32>;
var<workgroup> sorted: array<vec2<u32>, LANES>;
var<workgroup> bins: array<atomic<u32>, LANES>;
var<workgroup> cut: vec3<u32>;

// guess = want-th of the lanes' highest places: at least `want` places of the row are not below the guess,
// and usually few more.
fn make_guess(lane_top: vec2<u32>, want: u32, lane: u32) {
  tops[lane] = lane_top;
  workgroupBarrier();
  var above = 0u;
  for (var i = 0u; i < LANES; i++) { above += u32(is_below(lane_top, tops[i])); }
  if (above + 1u == want) { guess = lane_top; }
}

// Bin with the want-th highest place, and the rank of that place in the bin.
fn cut_bins(want: u32) -> vec2<u32> {
  var bin = LANES - 1u;
  var left = want;
  loop {
    let held = atomicLoad(&bins[bin]);
    if ((bin == 0u) | (held >= left)) { break; }
    left -= held;
    bin--;
  }
  return vec2<u32>(bin, left);
}

fn sort_kept(n: u32, want: u32, lane: u32) {  // moves each place to its rank, without barriers
  for (var i = lane; i < n; i += LANES) {
    let place = kept[i];
    var above = 0u;
    for (var j = 0u; j < n; j++) { above += u32(is_below(place, kept[j])); }
    if (above < want) { sorted[above] = place; }
  }
  workgroupBarrier();
}

// Collects the places that are not below the guess. If more than KEPT remain, radix selection narrows them,
// one digit per pass; the want-th place is not below the guess, so places below it need not be counted.
fn keep_highest(row: u32, want: u32, lane_top: vec2<u32>, lane: u32) {
  make_guess(lane_top, want, lane);
  var low = vec2<u32>(0u);   // known digits of the want-th place
  var mask = vec2<u32>(0u);  // mask of the known digits
  var left = want;           // rank of the want-th place among places with these digits
  var n = 0u;
  for (var digit = 0u; digit <= DIGITS; digit++) {
    let shift = 24u - 8u * (digit % 4u);
    let here = select(vec2<u32>(0u, 255u), vec2<u32>(255u, 0u), digit < 4u) << vec2<u32>(shift);
    atomicStore(&bins[lane], 0u);
    if (lane == 0u) { atomicStore(&n_kept, 0u); }
    workgroupBarrier();
    let least = higher(guess, low);
    for (var id = lane; id < V; id += LANES) {
      let place = place_of(logits[row + id], id);
      if (!is_below(place, least)) {
        let slot = atomicAdd(&n_kept, 1u);
        if (slot < KEPT) { kept[slot] = place; }
        let part = place & here;
        if (all((place & mask) == low)) { atomicAdd(&bins[(part.x | part.y) >> shift], 1u); }
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      let held = atomicLoad(&n_kept);
      var next = vec2<u32>(0u);
      if (held > KEPT) { next = cut_bins(left); }
      cut = vec3<u32>(next, held);
    }
    let found = workgroupUniformLoad(&cut);
    n = found.z;
    if (n <= KEPT) { break; }
    low |= vec2<u32>(found.x << shift) & here;
    mask |= here;
    left = found.y;
  }
  sort_kept(n, want, lane);
}
