// expert: one matrix of a stack, or one of each of two stacks.
inline Weights expert_of(const device uchar *weights, const device uchar *up_weights, uint expert) {
  ulong from = ulong(expert) * N * ROW_BYTES;
  return {weights + from, up_weights + from};
}
