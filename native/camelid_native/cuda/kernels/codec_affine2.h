/* codec affine2: 8 bytes of a stream of 2-bit codes | scale, minimum. */
#pragma once
enum { BITS = 2 };
#include "affine.h"
