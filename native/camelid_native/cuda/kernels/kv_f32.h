/* kv_f32: floats. */
#pragma once
#include "kv.h"

struct FloatRows {
    static DEVICE long long bytes(int cols) { return 4ll * cols; }
    template <int N> static DEVICE void load(const u8 *row, int c, float *v) {
        const float *at = (const float *)row + c;
        if (N == 2) {
            v[0] = at[0], v[1] = at[1];
            return;
        }
        for (int i = 0; i < N; i += 4) {
            const uint4 words = load16(at + i);
            v[i] = as_float(words.x), v[i + 1] = as_float(words.y);
            v[i + 2] = as_float(words.z), v[i + 3] = as_float(words.w);
        }
    }
    static DEVICE void store(u8 *row, int c, float v, bool is_inside) {
        if (is_inside) ((float *)row)[c] = v;
    }
};
typedef FloatRows KvRows;
