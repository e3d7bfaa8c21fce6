/* linear: the task of a block that writes rows of a matrix times rows of x, plus a bias (outputs.h). */
#pragma once
#define FEW_THREADS 128
#include "outputs.h"

struct Linear {
    enum { R = 1 };
    Matrix weight;
    Input in;
    Norm norm;
    float *y;
    const float *bias;
    int first, rows, y_stride;
    int base;  /* rows of the launch before this matrix */

    DEVICE int row() const { return BLOCK_X * BLOCK_ROWS + THREAD / CLASSES - base; }
    /* Rows behind the last are computed as the last one and not written. */
    DEVICE void find_rows(int (&own)[R]) const { own[0] = first + (row() < rows ? row() : rows - 1); }
    DEVICE void finish(const float (&own)[R], int token) const {
        if (token + CLASS >= in.n || row() >= rows) return;
        y[(long long)(token + CLASS) * y_stride + row()] = bias ? own[0] + bias[row()] : own[0];
    }
};
