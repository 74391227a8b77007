// A compute type: weights of 8 bits, products in float. It names a template argument; no tensor
// holds it.
#pragma once

#include <cstdint>

#include "xpu/dll_export.h"

struct DLL_EXPORT int8_wo_t {
    int8_t value;
};
