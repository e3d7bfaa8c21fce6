// defer: z gets column c of a deferred norm of y: y * gain, and behind all N the sum of squares of each quad of
// neighbours, which a thread adds in order.
inline void defer(device float *z, uint c, float v, float gain, thread float &squares) {
  squares = c % 4 == 0 ? v * v : fma(v, v, squares);
  z[c] = v * gain;
  if (c % 4 == 3) z[N + c / 4] = squares;
}
