// place: a logit's place among all: a key, which orders as floats do, then the id, the lowest first. So no two
// logits of a row share a place, and the first k are one certain set.
fn key_of(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let flipped = bits ^ select(0x80000000u, 0xffffffffu, bits > 0x80000000u);
  return select(flipped, bits, bits == 0x80000000u);  // -0, which equals 0
}

fn value_of(key: u32) -> f32 {
  return bitcast<f32>(key ^ select(0xffffffffu, 0x80000000u, key >= 0x80000000u));
}

fn place_of(v: f32, id: u32) -> vec2<u32> { return vec2<u32>(key_of(v), ~id); }

fn is_below(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.x < b.x) | ((a.x == b.x) & (a.y < b.y)); }

fn higher(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, is_below(a, b)); }

var<workgroup> best_key: atomic<u32>;
var<workgroup> best_rest: atomic<u32>;

// Of all lanes: the largest key, then of those that have it the largest rest.
fn highest(place: vec2<u32>, lane: u32) -> vec2<u32> {
  workgroupBarrier();  // the last reader may still be reading
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
