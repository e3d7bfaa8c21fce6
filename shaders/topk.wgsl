// topk: the highest `want` (at most LANES) of a row of V logits, exactly, in order, in `sorted`. LANES is 256.
const KEPT: u32 = 512u;  // that are sorted
const DIGITS: u32 = 8u;  // of a place, of 8 bits each
var<workgroup> tops: array<vec2<u32>, LANES>;
var<workgroup> guess: vec2<u32>;
var<workgroup> kept: array<vec2<u32>, KEPT>;
var<workgroup> n_kept: atomic<u32>;
var<workgroup> sorted: array<vec2<u32>, LANES>;
var<workgroup> bins: array<atomic<u32>, LANES>;
var<workgroup> cut: vec3<u32>;

// Of the lanes' highest places the want-th: as many of the row are not below it, and most often few more.
fn make_guess(lane_top: vec2<u32>, want: u32, lane: u32) {
  tops[lane] = lane_top;
  workgroupBarrier();
  var above = 0u;
  for (var i = 0u; i < LANES; i++) { above += u32(is_below(lane_top, tops[i])); }
  if (above + 1u == want) { guess = lane_top; }
}

// The bin, from the highest on, that holds the want-th place, and which of that bin's places it is.
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

fn sort_kept(n: u32, want: u32, lane: u32) {  // each to its rank: no steps that wait for each other
  for (var i = lane; i < n; i += LANES) {
    let place = kept[i];
    var above = 0u;
    for (var j = 0u; j < n; j++) { above += u32(is_below(place, kept[j])); }
    if (above < want) { sorted[above] = place; }
  }
  workgroupBarrier();
}

// Keeps what is not below the guess. While that is more than has room, radix selection, a digit a pass: the
// want-th place is then above the guess, and none of those below need be counted.
fn keep_highest(row: u32, want: u32, lane_top: vec2<u32>, lane: u32) {
  make_guess(lane_top, want, lane);
  var low = vec2<u32>(0u);   // the digits of the want-th place that are known
  var mask = vec2<u32>(0u);  // where these are
  var left = want;           // which it is of the places with these digits
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
