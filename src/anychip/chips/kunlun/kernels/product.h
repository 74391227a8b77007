// Products, shared by the primitives and the network's linears.
#pragma once

#include "compose.h"

namespace shim {

// y [m, n] = alpha * x [m, k] . w + bias; w is [n, k], or [k, n] where `turned` is false. bias:
// float32 [n] or null. Rows of x may lie apart.
struct Product {
    View x;
    View w;
    bool turned;
    View y;
    const float* bias;
    float alpha;
};

void multiply(Run& run, const Product& product);

// cap * tanh(x / cap) where cap is above 0.
void cap_in_place(Run& run, const Array<float>& x, double cap);

}  // namespace shim
