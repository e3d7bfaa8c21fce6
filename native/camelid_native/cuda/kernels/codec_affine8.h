/* codec affine8: 32 bytes of a stream of 8-bit codes | scale, minimum. */
#pragma once
enum { BITS = 8 };
#include "affine.h"
