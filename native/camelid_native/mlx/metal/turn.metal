// turn: the rotation of pairs of floats by an angle, as products of complex numbers. Constants: PAIRS of a head, OFFSET of
// the first rotated float, NEXT: stride from a pair's first float to its second, PITCH: stride between pairs, FINE_ROWS.
inline float2 turned(float2 v, float2 by) {
  return float2(fma(v.x, by.x, -(v.y * by.y)), fma(v.x, by.y, v.y * by.x));
}

// (cos, sin) of position * frequency: the product of two table entries, of position % FINE_ROWS and of position /
// FINE_ROWS.
inline float2 angle(const device float *fine, const device float *coarse, uint position, uint pair) {
  const device float *a = fine + (position % FINE_ROWS * PAIRS + pair) * 2;
  const device float *b = coarse + (position / FINE_ROWS * PAIRS + pair) * 2;
  return turned(float2(a[0], a[1]), float2(b[0], b[1]));
}
