// block: reductions over a threadgroup of THREADS threads; all threads get the result. `shared` has a place per simdgroup.
constant constexpr uint SIMDS = THREADS / LANES;

inline float block_sum(float v, threadgroup float *shared, uint thread_number) {
  float sum = lane_sum(v);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // others may still read the reduction before
  if (thread_number % LANES == 0) shared[thread_number / LANES] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float all = shared[0];
  for (uint i = 1; i < SIMDS; i++) all = all + shared[i];
  return all;
}

inline ulong block_max(ulong v, threadgroup ulong *shared, uint thread_number) {
  for (ushort mask = 1; mask < LANES; mask *= 2) {  // shuffles have 32 bits
    uint high = simd_shuffle_xor(uint(v >> 32), mask), low = simd_shuffle_xor(uint(v), mask);
    v = max(v, ulong(high) << 32 | low);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_number % LANES == 0) shared[thread_number / LANES] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong all = shared[0];
  for (uint i = 1; i < SIMDS; i++) all = max(all, shared[i]);
  return all;
}
