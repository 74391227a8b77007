// The sign of what the entry points return.
#pragma once

namespace xpusim {

// Inside, codes are positive as in xpu/defs.h. Outside they are negative, as users' logs of the
// real runtime show them ("XPU Error <-701>", "xpu_host_alloc -706", "-714").
inline int answer(int code) { return -code; }

}  // namespace xpusim
