/* matrix: a weight in planes (weights.py): field p of block b of row r is at planes[p] + (r * blocks + b) * bytes. */
#pragma once
#include "gpu.h"

struct Matrix { const u8 *planes[3]; const u8 *book; int rows, cols; };
