// gate_swiglu_oai: gate at most 7, up from -7 to 7; gate * sigmoid(1.702 * gate) * (up + 1).
inline float gated(float gate, float up) {
  float low = gate > 7.0f ? 7.0f : gate, bounded = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return low * sigmoid_of(low * 1.702f) * (bounded + 1.0f);
}
