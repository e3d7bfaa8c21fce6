// softmax: the sum of two runs' softmax sums. Keys are cut at multiples of SPLIT. Both ways through attention add the
// runs in order by the same function, so that they give the same bits. Values wider than 256 have several sides, each
// with a workgroup of its own.
const LOWEST: f32 = -3.0e38;
override SPLIT: u32 = 128u;  // keys of a run
override SPLITS: u32 = 1u;
override HEADS: u32 = 1u;
override SIDES: u32 = 1u;  // of a query head
override V_DIM: u32 = 64u;  // floats of a value on a side
override PARTS: u32 = V_DIM / 4u;  // lanes that share a value
override HAS_SINKS: bool = false;

struct Softmax { top: f32, sum: f32, out: vec4<f32> }  // highest score, sum of weights, weighted values

fn joined(a: Softmax, b: Softmax) -> Softmax {
  let top = max(a.top, b.top);
  let fade = exp(a.top - top);
  let weight = exp(b.top - top);
  return Softmax(top, fma(b.sum, weight, a.sum * fade), fma(b.out, vec4(weight), a.out * fade));
}

fn begun(sink: f32) -> Softmax {  // a sink is a score without a value
  if (HAS_SINKS) { return Softmax(sink, 1.0, vec4<f32>()); }
  return Softmax(LOWEST, 0.0, vec4<f32>());
}
