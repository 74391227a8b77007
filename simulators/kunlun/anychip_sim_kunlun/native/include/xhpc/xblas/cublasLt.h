// Paddle includes this one for xblas::fc_fusion. The vendor's file is the CUDA-like layer of
// XRE 5, which this simulator does not have; what it shares with the older names is here.
#pragma once

#include "xblas_legacy_api.h"
