// gate_plain: an activation times up.
inline float gated(float gate, float up) { return ACT(gate) * up; }
