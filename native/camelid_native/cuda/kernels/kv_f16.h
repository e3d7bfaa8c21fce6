/* kv_f16: halves. */
#pragma once
#include "kv.h"

typedef HalfRows KvRows;
