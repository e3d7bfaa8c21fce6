// adjust: applies logit bias and penalties in place. One lane owns each touched id and keeps its old logit; a
// workgroup has at least TOUCHED lanes.
const BIASES: u32 = 16u;   // maximum number of biases
const HISTORY: u32 = 64u;  // maximum number of penalized positions
const TOUCHED: u32 = BIASES + HISTORY;
var<workgroup> touched: array<u32, TOUCHED>;  // ids of the biases, then of the ring; V marks an unused entry

struct Penalties { repeat: f32, frequency: f32, presence: f32, last_n: u32, biases: u32, first_bias: u32 }

fn penalties_at(sampling: u32) -> Penalties {
  let repeat = bitcast<f32>(step[sampling + 8u]);
  let frequency = bitcast<f32>(step[sampling + 9u]);
  let presence = bitcast<f32>(step[sampling + 10u]);
  let is_neutral = repeat == 1.0 && frequency == 0.0 && presence == 0.0;
  let last_n = select(min(step[sampling + 11u], HISTORY), 0u, is_neutral);
  return Penalties(repeat, frequency, presence, last_n, min(step[sampling + 12u], BIASES), step[sampling + 13u]);
}

fn note_touched(p: Penalties, ring_at: u32, position: u32, lane: u32) {
  let back = lane - BIASES;
  var id = V;
  if (lane < p.biases) { id = step[step[BIASES_AT] + 2u * (p.first_bias + lane)]; }
  if (lane >= BIASES && back < p.last_n) {
    id = ring[ring_at + (position - 1u - back) % RING_ROWS];
  }
  if (lane < TOUCHED) { touched[lane] = min(id, V); }
  workgroupBarrier();
}

// Id owned by a lane, with its logit before the adjustment. The first lane that touches an id owns it; id V
// means that the lane owns none.
struct Own { id: u32, before: f32 }

fn own_id(lane: u32) -> u32 {
  if (lane >= TOUCHED) { return V; }
  var id = touched[lane];
  for (var i = 0u; i < lane; i++) { id = select(id, V, touched[i] == id); }
  return id;
}

fn adjusted(own: Own, p: Penalties) -> f32 {
  var logit = own.before;
  var count = 0u;
  for (var i = 0u; i < TOUCHED; i++) {
    if (touched[i] == own.id) {
      if (i < BIASES) {
        logit += bitcast<f32>(step[step[BIASES_AT] + 2u * (p.first_bias + i) + 1u]);
      } else {
        count++;
      }
    }
  }
  let repeated = select(logit / p.repeat, logit * p.repeat, logit <= 0.0);
  return select(logit, repeated - (f32(count) * p.frequency + p.presence), count > 0u);
}

fn adjust(row: u32, p: Penalties, lane: u32) -> Own {
  var own = Own(own_id(lane), 0.0);
  if (own.id < V) {
    own.before = logits[row + own.id];
    logits[row + own.id] = adjusted(own, p);
  }
  storageBarrier();
  return own;
}

fn restore(row: u32, own: Own) {
  storageBarrier();
  if (own.id < V) { logits[row + own.id] = own.before; }
  storageBarrier();
}
