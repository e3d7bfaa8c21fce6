// place: position of a logit in the order of a row: a key in the order of floats, then the id, the lowest
// first. Places in a row are distinct, so the first k are a unique set.
fn key_of(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let flipped = bits ^ select(0x80000000u, 0xffffffffu, bits > 0x80000000u);
  return select(flipped, bits, bits == 0x80000000u);  // -0 gets the key of 0
}

fn value_of(key: u32) -> f32 {
  return bitcast<f32>(key ^ select(0xffffffffu, 0x80000000u, key >= 0x80000000u));
}

fn place_of(v: f32, id: u32) -> vec2<u32> { return vec2<u32>(key_of(v), ~id); }

fn is_below(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.x < b.x) | ((a.x == b.x) & (a.y < b.y)); }

fn higher(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, is_below(a, b)); }

var<workgroup> best_key: atomic<u32>;
var<workgroup> best_rest: atomic<u32>;

// Highest place of all lanes: the largest key, ties to the largest second word.
fn highest(place: vec2<u32>, lane: u32) -> vec2<u32> {
  workgroupBarrier();  // lanes may still read the results of the call before
  if (lane == 0u) {
    atomicStore(&best_key, 0u);
    atomicStore(&best_rest, 0u);
  }
  workgroupBarrier();
  atomicMax(&best_key, place.x);
  workgroupBarrier();
  if (place.x == atomicLoad(&best_key)) { atomicMax(&best_rest, place.y); }
  workgroupBarrier();
  return vec2<u32>(atomicLoad(&best_key), atomicLoad(&best_rest));
}
