// philox: noise of a draw, the first word of Philox4x32-10 (Salmon et al., SC 2011) keyed by the seed. The counter is
// (id, position, choice, purpose), so the noise does not depend on order or batch.
struct Noise { uint low, high, position, choice; };

inline uint philox(uint id, Noise noise, uint purpose) {
  uint a = id, b = noise.position, c = noise.choice, d = purpose, low = noise.low, high = noise.high;
  for (uint round = 0; round < 10; round++) {
    uint a_high = mulhi(0xD2511F53u, a), c_high = mulhi(0xCD9E8D57u, c);
    uint a_low = a * 0xD2511F53u, c_low = c * 0xCD9E8D57u;
    a = c_high ^ b ^ low;
    b = c_low;
    c = a_high ^ d ^ high;
    d = a_low;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return a;
}

// -log(-log(u)). Near 1, float32 rounds u to 1 and log is inaccurate: there -log(u) is a series in d = 1 - u.
inline float gumbel(uint id, Noise noise) {
  uint bits = philox(id, noise, 0) >> 8;
  float u = (float(bits) + 0.5f) * 5.9604644775390625e-8f;
  float d = (float(0xFFFFFFu - bits) + 0.5f) * 5.9604644775390625e-8f;
  float series = d * (1.0f + d * (0.5f + d * (1.0f / 3.0f + d * 0.25f)));
  return -log_of(d < 0.01f ? series : -log_of(u));
}
