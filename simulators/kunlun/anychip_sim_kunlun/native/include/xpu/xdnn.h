// libxpuapi: base types and plain operators, re-declared from public facts.
// abi_xdnn.tsv says for each where it was seen and what is a guess.
#pragma once

#include "xpu/refactor/math.h"
#include "xpu/refactor/nn_activation.h"
#include "xpu/refactor/nn_embedding.h"
#include "xpu/xdnn_types.h"

// What the vendor's xdnn.h also brings; the language-model part of this tree declares it.
#if __has_include("xpu/refactor/nn.h")
#include "xpu/refactor/nn.h"
#endif
#if __has_include("xpu/refactor/fusion.h")
#include "xpu/refactor/fusion.h"
#endif
