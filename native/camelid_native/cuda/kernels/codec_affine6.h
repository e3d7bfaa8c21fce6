/* codec affine6: 24 bytes of a stream of 6-bit codes | scale, minimum. */
#pragma once
enum { BITS = 6 };
#include "affine.h"
