// topk: the highest `want` (at most 256) of a row of V logits, exactly, in order, in `kept`.
const KEPT: u32 = 512u;  // that are sorted
const BINS: u32 = 256u;
var<workgroup> kept: array<vec2<u32>, KEPT>;
var<workgroup> n_kept: atomic<u32>;
var<workgroup> bins: array<atomic<u32>, BINS>;
var<workgroup> cut: vec3<u32>;

// Of the lanes' highest places the want-th: as many of the row are not below it, and most often few more.
fn first_guess(lane_top: vec2<u32>, want: u32, lane: u32) -> vec2<u32> {
  if (want > LANES) { return vec2<u32>(0u); }
  workgroupBarrier();
  places[lane] = lane_top;
  workgroupBarrier();
  var above = 0u;
  for (var i = 0u; i < LANES; i++) { above += u32(is_below(lane_top, places[i])); }
  if (above + 1u == want) { cut = vec3<u32>(lane_top, 0u); }
  return workgroupUniformLoad(&cut).xy;
}

fn collect(row: u32, low: vec2<u32>, lane: u32) -> u32 {  // how many are not below; kept if they have room
  workgroupBarrier();
  if (lane == 0u) { atomicStore(&n_kept, 0u); }
  workgroupBarrier();
  for (var id = lane; id < V; id += LANES) {
    let place = place_of(logits[row + id], id);
    if (!is_below(place, low)) {
      let slot = atomicAdd(&n_kept, 1u);
      if (slot < KEPT) { kept[slot] = place; }
    }
  }
  workgroupBarrier();
  if (lane == 0u) { cut.z = atomicLoad(&n_kept); }
  return workgroupUniformLoad(&cut).z;
}

// The digit of the want-th place, counting from the highest: how many are above that digit, how many not below.
fn cut_bins(taken: u32, want: u32) -> vec3<u32> {
  var bin = BINS - 1u;
  var above = taken;
  while (bin > 0u && above + atomicLoad(&bins[bin]) < want) {
    above += atomicLoad(&bins[bin]);
    bin--;
  }
  return vec3<u32>(bin, above, above + atomicLoad(&bins[bin]));
}

// Radix selection, a digit of 8 bits a time, until those that are not below the place have room. More than that
// are not below the guess, so the place is above it, and none of those below need be counted.
fn narrow(row: u32, want: u32, guess: vec2<u32>, lane: u32) -> vec2<u32> {
  var low = vec2<u32>(0u);
  var mask = vec2<u32>(0u);
  var taken = 0u;
  for (var digit = 0u; digit < 8u; digit++) {
    let part = digit / 4u;
    let shift = 24u - 8u * (digit % 4u);
    for (var bin = lane; bin < BINS; bin += LANES) { atomicStore(&bins[bin], 0u); }
    workgroupBarrier();
    for (var id = lane; id < V; id += LANES) {
      let place = place_of(logits[row + id], id);
      if (!is_below(place, guess) && all((place & mask) == low)) {
        atomicAdd(&bins[(place[part] >> shift) & 255u], 1u);
      }
    }
    workgroupBarrier();
    if (lane == 0u) { cut = cut_bins(taken, want); }
    let found = workgroupUniformLoad(&cut);
    low[part] |= found.x << shift;
    mask[part] |= 255u << shift;
    taken = found.y;
    if (found.z <= KEPT) { break; }
  }
  return low;
}

fn sort_kept(n: u32, lane: u32) {  // bitonic, highest first
  var size = 2u;
  while (size < n) { size *= 2u; }
  for (var i = n + lane; i < size; i += LANES) { kept[i] = vec2<u32>(0u); }
  for (var run = 2u; run <= size; run *= 2u) {
    for (var gap = run / 2u; gap > 0u; gap /= 2u) {
      workgroupBarrier();
      for (var i = lane; i < size / 2u; i += LANES) {
        let a = 2u * gap * (i / gap) + i % gap;
        let first = kept[a];
        let second = kept[a + gap];
        if (is_below(first, second) == ((a & run) == 0u)) {
          kept[a] = second;
          kept[a + gap] = first;
        }
      }
    }
  }
  workgroupBarrier();
}

fn keep_highest(row: u32, want: u32, lane_top: vec2<u32>, lane: u32) {
  let guess = first_guess(lane_top, want, lane);
  var n = collect(row, guess, lane);
  if (n > KEPT) { n = collect(row, narrow(row, want, guess, lane), lane); }
  sort_kept(n, lane);
}
