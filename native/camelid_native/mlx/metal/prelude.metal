// prelude: of every kernel. Sums are fused where the text says so and nowhere else.
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp contract(off)

constant constexpr uint LANES = 32;  // of a simdgroup

// The sum over the lanes of a simdgroup, in pairs and pairs of pairs: simd_sum has an order of the hardware's own.
inline float lane_sum(float v) {
  for (ushort mask = 1; mask < LANES; mask *= 2) v = v + simd_shuffle_xor(v, mask);
  return v;
}
